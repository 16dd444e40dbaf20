"""Fixtures for all tests of the repository come from the room that plugin authors use, too."""

pytest_plugins = [
    "codefyui_core.testing.fixtures",
    "cdui_develop.pytest_collecting",
    "cdui_develop.pytest_order",
    "cdui_develop.pytest_services",
    "cdui_develop.pytest_buckets",
]
