"""The pages that people read."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def pages() -> list[Path]:
    """Markdown of the root, the docs and the examples."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/**/*.md")]
    return sorted(found)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))


@pytest.fixture
def repository() -> Path:
    return REPOSITORY
