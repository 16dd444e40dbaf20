"""docs/protocol.md says what the code does: the same words, the same fields, the same closed lists."""

import re
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest

from codefyui_core.wire import messages

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
HEADINGS = {
    "from the agent": messages.FromAgent,
    "from the control plane": messages.FromControl,
}
BOTH = {messages.Part, messages.Bad}


def documented():
    for section in re.split(r"^### ", PAGE, flags=re.M)[1:]:
        heading = re.match(r"`(\w+)`, (from the agent|from the control plane|in both directions)\n", section)
        if heading:
            rows = re.findall(r"^\| `(\w+)` \| (yes)? ?\| (.+) \|$", section, flags=re.M)
            yield heading.groups(), {name: (bool(required), text) for name, required, text in rows}


def modelled():
    for side, union in HEADINGS.items():
        for model in get_args(get_args(union)[0]):
            where = "in both directions" if model in BOTH else side
            yield (model.model_fields["t"].default, where), model


PAGES = dict(documented())
MODELS = dict(modelled())


def test_the_page_has_every_message_and_no_other():
    assert set(PAGES) == set(MODELS)


@pytest.mark.parametrize("key", sorted(MODELS))
def test_every_field_is_there_with_its_meaning(key):
    fields = {name: field for name, field in MODELS[key].model_fields.items() if name != "t"}
    assert {name: row[0] for name, row in PAGES[key].items()} == {
        name: field.is_required() for name, field in fields.items()
    }
    assert all(len(text) > 2 for _, text in PAGES[key].values())


@pytest.mark.parametrize(
    "choices",
    [messages.ItemKind, messages.VerdictKind, messages.RefusalCode, messages.Phase, messages.StopReason],
)
def test_closed_lists_are_written_out(choices):
    assert issubclass(choices, StrEnum)
    missing = [choice for choice in choices if not re.search(rf"\b{choice}\b", PAGE)]
    assert missing == []


@pytest.mark.parametrize(
    "shape",
    [
        messages.HelloAttempt,
        messages.DeviceInfo,
        messages.Verdict,
        messages.LineSettings,
        messages.AcceptedItem,
        messages.ExitedItem,
        messages.ToldItem,
        messages.EndItem,
        messages.AckEntry,
        messages.WorkerIdentity,
        messages.FailedPlugin,
        messages.Item,
    ],
)
def test_the_fields_of_shapes_are_named(shape):
    missing = [name for name, field in shape.model_fields.items() if f"`{field.alias or name}`" not in PAGE]
    missing = [name for name in missing if f'"{name}"' not in PAGE]
    assert missing == []
