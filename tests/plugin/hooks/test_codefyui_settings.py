"""The page of ``codefyui_settings``."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from codefyui_core.loading import Registry
from codefyui_core.plugin import Plane


def test_the_documented_settings_are_loaded_and_read_their_variables(
    documented: Callable[[str], Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    cls: Any
    (cls,) = documented("codefyui_settings").settings
    assert cls.planes == {Plane.CONTROL, Plane.AGENT}
    monkeypatch.setenv("CODEFYUI_WEATHER_STATION", "Brocken")
    monkeypatch.setenv("CODEFYUI_WEATHER_KEY", "secret")
    settings = cls()
    assert settings.weather_station == "Brocken"
    assert "secret" not in repr(settings)
    monkeypatch.setenv("CODEFYUI_WEATHER_EVERY_S", "0")
    with pytest.raises(ValidationError, match="weather_every_s"):
        cls()
