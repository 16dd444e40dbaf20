"""Settings as rows, for ``cdui settings`` and ``GET /api/settings``. Secrets are stars."""

from dataclasses import asdict, dataclass
from typing import cast

from pydantic import JsonValue
from pydantic_core import PydanticUndefined, to_jsonable_python
from pydantic_settings import BaseSettings

from ..plugin.values import JsonObject, Plane
from .layers import Layers, Source
from .read import is_secret, read_settings, variable_of

_STARS = "**********"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting as it is now."""

    name: str
    value: JsonValue
    default: JsonValue
    source: Source
    plane: str
    """``control``, ``agent`` or ``both``."""
    owner: str
    """The distribution whose setting it is."""
    description: str

    def to_json(self) -> JsonObject:
        return cast("JsonObject", asdict(self) | {"source": self.source.value})


def describe(cls: type[BaseSettings], layers: Layers, owner: str = "codefyui-core") -> tuple[SettingRow, ...]:
    """One row a field of a settings class, in its order.

    Raises: UsageProblem when a value doesn't fit.
    """
    values = to_jsonable_python(read_settings(cls, layers))
    return tuple(_row(cls, field, values[field], layers, owner) for field in cls.model_fields)


def _row(cls: type[BaseSettings], field: str, value: JsonValue, layers: Layers, owner: str) -> SettingRow:
    info = cls.model_fields[field]
    variable = variable_of(field)
    return SettingRow(
        name=variable,
        value=_STARS if value is not None and is_secret(cls, field) else value,
        default=_default(cls, field),
        source=layers.source(variable),
        plane=_plane(cls),
        owner=owner,
        description=" ".join((info.description or "").split()),
    )


def _default(cls: type[BaseSettings], field: str) -> JsonValue:
    default = cls.model_fields[field].get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined or default is None:
        return None
    if is_secret(cls, field):
        return _STARS
    shown = cls.model_construct(**{field: default}).model_dump(mode="json", include={field})
    return cast("JsonValue", shown[field])


def _plane(cls: type[BaseSettings]) -> str:
    planes = getattr(cls, "planes", frozenset(Plane))
    return "both" if len(planes) > 1 else next(iter(planes)).value
