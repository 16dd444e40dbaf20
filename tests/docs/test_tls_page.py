"""``docs/tls.md`` against the connector."""

import re
import shlex
from pathlib import Path

import pytest

from codefyui_core.loading import load
from codefyui_core.plugin import Plane
from codefyui_core.settings import AgentSettings, ControlSettings, describe
from codefyui_core.settings.layers import Layers

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "tls.md").read_text(encoding="utf-8")
PLUGINS = ("builtin", "connect_tls")


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines()]


@pytest.mark.spec("trust/fingerprint-command-agrees")
def test_the_pipeline_is_the_one_that_the_dialog_shows() -> None:
    models = pytest.importorskip("codefyui_connect_tls.models")
    assert models.fingerprint_command() in commands()


def test_the_pins_in_the_examples_are_well_formed() -> None:
    pins = pytest.importorskip("codefyui_connect_tls.pins")
    given = [words for line in commands() if "--ca-fingerprint" in (words := shlex.split(line))]
    for words in given:
        after = [words[at + 1] for at, word in enumerate(words) if word == "--ca-fingerprint"]
        assert pins.given_pins(after) == tuple(after)
    assert [words.count("--ca-fingerprint") for words in given] == [1, 2]


def test_the_setting_and_the_flag_have_their_rows() -> None:
    registry = load(plane=Plane.CONTROL, only=PLUGINS)
    (row,) = describe(registry.settings[0], Layers())
    assert f"| `{row.name}` | empty |" in (DOCS / "settings.md").read_text()
    (option,) = registry.agent_options()
    flag = f"| `codefyui-connect-tls` | `{option.option.opts[0]} {option.option.metavar}` |"
    assert flag in (DOCS / "commands.md").read_text()


@pytest.mark.spec("trust/out-of-scope")
def test_there_are_no_client_certificates_no_authority_of_ours_and_no_users() -> None:
    registry = load(plane=Plane.CONTROL)
    flags = {flag for option in registry.agent_options() for flag in option.option.opts}
    settings = (*registry.settings, AgentSettings, ControlSettings)
    fields = {name for cls in settings for name in cls.model_fields}
    about = re.compile(r"(^|[-_])(cert|certificate|ca|tls|ssl|user)([-_]|$)")
    assert {name for name in flags | fields if about.search(name)} == {"--ca-fingerprint", "tls_cert_file"}
