"""The marker ``needs``: a test that starts a program which this machine lacks is left out, but not on CI."""

import pytest

from .services import missing, on_ci


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*services): the programs that this test starts (services.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = {service.name for service in missing()}
    out = [item for item in items if absent.intersection(_needs(item))]
    if not out or on_ci():
        return
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def _needs(item: pytest.Item) -> set[str]:
    return {str(name) for marker in item.iter_markers("needs") for name in marker.args}
