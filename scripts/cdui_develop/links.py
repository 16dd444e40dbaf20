"""Finds links in Markdown that lead nowhere: files and headings of this repository, not addresses."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class BrokenLink:
    """A link and the page that it stands on."""

    page: Path
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}: {self.target}: {self.reason}"


def broken_links(page: Path, root: Path) -> Iterator[BrokenLink]:
    """Those of one page; a target must lie below ``root``."""
    for target in links(page.read_text(encoding="utf-8")):
        reason = _problem(page, unquote(target), root)
        if reason:
            yield BrokenLink(page=page.relative_to(root), target=target, reason=reason)


def links(text: str) -> list[str]:
    """Targets inside the repository, in order; code is no text."""
    prose = _CODE.sub("``", _FENCE.sub("", text))
    found = [*_LINK.findall(prose), *_REFERENCE.findall(prose)]
    return [target for target in found if not _ADDRESS.match(target)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    found: dict[str, int] = {}
    names = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        name = _slug(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def _slug(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


def _problem(page: Path, target: str, root: Path) -> str | None:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.is_relative_to(root):
        return "leads out of the repository"
    if not path.exists():
        return "no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
        return "no such heading"
    return None
