"""Links of the pages lead somewhere."""

from pathlib import Path

import pytest

from cdui_develop.links import anchors, broken_links, links


def test_no_link_is_broken(page: Path, repository: Path) -> None:
    assert [str(link) for link in broken_links(page, repository)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see [a](b.md) and [c](d/e.md#f)", ["b.md", "d/e.md#f"]),
        ("[out](https://example.org) [mail](mailto:a@b) [//](//x)", []),
        ("![picture](p.png 'x')", []),
        ('![picture](p.png "x")', ["p.png"]),
        ("`[a](b.md)` and ``[`](c.md)``", []),
        ("```md\n[a](b.md)\n```\n[c](d.md)", ["d.md"]),
        ("[a][ref]\n\n[ref]: there.md\n", ["there.md"]),
        ("[a](<b c.md>)", []),
    ],
)
def test_links_are_found_in_prose_only(text: str, found: list[str]) -> None:
    assert links(text) == found


def test_headings_make_anchors() -> None:
    text = "# The `cdui` command\n## A [link](x.md), *too*\n## Same\n## Same\n```sh\n# no heading\n```\n"
    assert anchors(text) == {"the-cdui-command", "a-link-too", "same", "same-1"}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("gone.md", "no such file"),
        ("other.md#gone", "no such heading"),
        ("#gone", "no such heading"),
        ("../../x.md", "leads out of the repository"),
    ],
)
def test_a_broken_link_says_why(tmp_path: Path, target: str, reason: str) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"# Here\n[x]({target}) [ok](other.md#there) [self](#here)\n")
    (tmp_path / "docs" / "other.md").write_text("# There\n")
    assert [link.reason for link in broken_links(page, tmp_path)] == [reason]
