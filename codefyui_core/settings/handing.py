"""What of the planes' settings the processes of runs get in their environment, and what they don't."""

from collections.abc import Iterable

from pydantic_settings import BaseSettings

from .core import AgentSettings, ControlSettings, PlaneSettings
from .read import is_secret, variable_of

FOR_RUNS = (
    "max_parallel_nodes",
    "run_io_cap_bytes",
    "execution_cache_max_mb",
    "stats_sample_threshold",
    "stats_sample_size",
    "max_image_pixels",
)


def environment_of_runs(
    settings: PlaneSettings, plugins: Iterable[type[BaseSettings]] = ()
) -> dict[str, str]:
    """Limits that engine and nodes obey, wherever they were set; and every secret of the planes blanked, so
    that user code doesn't find a database's password or a bucket's keys in its environment.
    """
    handed = {variable_of(field): str(getattr(settings, field)) for field in FOR_RUNS}
    if isinstance(settings, ControlSettings):
        handed[variable_of("run_event_payload_cap_bytes")] = str(settings.run_event_payload_cap_bytes)
    return handed | dict.fromkeys(_secrets((ControlSettings, AgentSettings, *plugins)), "")


def _secrets(classes: Iterable[type[BaseSettings]]) -> Iterable[str]:
    return (variable_of(field) for cls in classes for field in cls.model_fields if is_secret(cls, field))
