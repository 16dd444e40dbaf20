"""What plugin authors import is whole, and holds what it promises."""

import importlib

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

import codefyui_core.plugin as contract
from codefyui_core.plugin import (
    Form,
    Grant,
    Model,
    Node,
    NodeDefinition,
    Param,
    ParamKind,
    PluginSettings,
    SecretText,
    Ticket,
)


def test_every_public_name_is_there_and_named_once() -> None:
    assert len(set(contract.__all__)) == len(contract.__all__)
    assert all(hasattr(contract, name) for name in contract.__all__)


@pytest.mark.parametrize(
    "module",
    ["commands", "connector", "halves", "hosts", "http", "node", "settings", "storage", "values", "views"],
)
def test_every_public_class_of_the_contract_is_exported(module: str) -> None:
    found = importlib.import_module(f"codefyui_core.plugin.{module}")
    own = {
        name
        for name, value in vars(found).items()
        if isinstance(value, type) and value.__module__ == found.__name__ and not name.startswith("_")
    }
    assert own <= set(contract.__all__), "add it to __all__, or begin its name with _"


class Login(Form):
    host: str
    password: SecretText

    def worker_name(self) -> str:
        return self.host


class Keys(Grant):
    secret_key: SecretText


@pytest.mark.parametrize(
    ("model", "values"), [(Login, {"host": "gpu", "password": "hunter2"}), (Keys, {"secret_key": "hunter2"})]
)
def test_secret_fields_are_stars_for_all_but_the_core(model: type[BaseModel], values: dict[str, str]) -> None:
    given = model.model_validate(values)
    assert "hunter2" not in repr(given) + str(given) + given.model_dump_json() + str(
        given.model_dump(mode="json")
    )
    assert model.model_validate_json(given.model_dump_json(context={"reveal": True})) == given


def test_what_crosses_a_boundary_refuses_unknown_names_and_changes() -> None:
    with pytest.raises(ValidationError):
        Ticket.model_validate({"inputs": [], "bucket": "x"})
    ticket = Ticket()
    with pytest.raises(ValidationError):
        ticket.inputs = ()  # type: ignore[misc]
    assert issubclass(Ticket, Model)


def test_a_node_class_becomes_data() -> None:
    class Twice(Node):
        type = "Twice"
        category = "Math"
        params = (Param(name="factor", kind=ParamKind.FLOAT, default=2.0),)

        def execute(self, inputs, params, context):  # type: ignore[no-untyped-def]
            return {}

    definition = Twice.define("my")
    assert definition.type == "my:Twice"
    assert Twice.define("").type == "Twice"
    assert NodeDefinition.model_validate_json(definition.model_dump_json()) == definition
    assert Twice.needed_inputs({}, frozenset()) is None


def test_settings_come_from_the_one_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(PluginSettings):
        my_key: SecretStr = SecretStr("")

    monkeypatch.setenv("CODEFYUI_MY_KEY", "k")
    assert Mine().my_key.get_secret_value() == "k"
