"""``docs/README.md`` leads to every page."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= linked
