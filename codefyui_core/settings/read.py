"""Fill a settings class from layers, and from nothing else.

Works for the core's own classes and for those of plugins: neither reads ``os.environ`` by itself here, so
that empty text, ``.env`` files and flags mean the same to all.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource

from ..errors import UsageProblem
from .layers import PREFIX, Layers

S = TypeVar("S", bound=BaseSettings)


class _LayeredSource(EnvSettingsSource):
    """pydantic-settings' reading of variables, from texts that are handed in."""

    def __init__(self, cls: type[BaseSettings], texts: Mapping[str, str]) -> None:
        self._texts = texts
        super().__init__(cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): text for name, text in self._texts.items()}


def read_settings(cls: type[S], layers: Layers) -> S:
    """An instance with the effective values.

    Raises: UsageProblem naming each variable whose value doesn't fit, and where it stands.
    """
    try:
        return cls(_build_sources=((_LayeredSource(cls, layers.merged()),), {}))
    except ValidationError as error:
        raise UsageProblem(_explain(cls, layers, error)) from None


def variable_of(field: str) -> str:
    """``port`` -> ``CODEFYUI_PORT``."""
    return PREFIX + field.upper()


def is_secret(cls: type[BaseSettings], field: str) -> bool:
    return "SecretStr" in str(cls.model_fields[field].annotation)


def _explain(cls: type[BaseSettings], layers: Layers, error: ValidationError) -> str:
    lines = [_explain_one(cls, layers, dict(problem)) for problem in error.errors(include_url=False)]
    return "\n".join([*lines, "Correct the value, or remove it to use the default (see cdui settings)."])


def _explain_one(cls: type[BaseSettings], layers: Layers, problem: Mapping[str, Any]) -> str:
    field = str(problem["loc"][0]) if problem["loc"] else ""
    variable = variable_of(field)
    found = layers.find(variable)
    if field not in cls.model_fields or found is None:
        return f"{variable if field else cls.__name__}: {problem['msg']}."
    text, source = found
    shown = str(SecretStr(text)) if is_secret(cls, field) else repr(text)
    return f"{variable} is {shown} (from: {_PLACES[source.value]}): {problem['msg']}."


_PLACES = {
    "flag": "the command line",
    "env": "the environment",
    "file": "the .env file",
    "default": "the default",
}
