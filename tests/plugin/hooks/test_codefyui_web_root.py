"""The page of ``codefyui_web_root``."""

from collections.abc import Callable

from codefyui_core.loading import Registry
from codefyui_core.testing.distributions import FakeSite


def test_the_documented_web_root_is_found(documented: Callable[[str], Registry], site: FakeSite) -> None:
    assert documented("codefyui_web_root").web_root() == site.folder / "dist"
