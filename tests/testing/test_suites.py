"""The suites find the faults that they are for, and pass what is right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codefyui_core.plugin import (
    AgentHost,
    Connector,
    ConnectorAgent,
    ControlLinkHost,
    Form,
    Link,
    LinkConnector,
    LinkControl,
    LinkMemo,
    LinkState,
    LinkStatus,
    LinkStop,
)
from codefyui_core.testing.suites import LinkSuite

pytest_plugins = ["pytester"]

RULES = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


class StringForm(Form):
    host: str
    port: int = 22

    def worker_name(self) -> str:
        return self.host.partition(".")[0]


class StringMemo(LinkMemo):
    slot: int


class StringAndCans(LinkConnector[StringForm, StringMemo]):
    """A connector with links that are always up; it dials like any."""

    name = "string"
    title = "String"
    form = StringForm
    memo = StringMemo
    line_title = "String"
    output_title = "Last words"

    def control(self, host: ControlLinkHost) -> "StringControl":
        return StringControl()

    def agent(self, host: AgentHost) -> ConnectorAgent:
        from codefyui_core.builtin.direct.agent import DirectAgent

        return DirectAgent()


class StringControl(LinkControl[StringForm, StringMemo]):
    async def admit(self, form: StringForm, links: Sequence[Link[StringForm, StringMemo]]) -> StringMemo:
        return StringMemo(slot=len(links))

    async def reconcile(self, links: Sequence[Link[StringForm, StringMemo]]) -> None:
        return

    async def stop(
        self, links: Sequence[Link[StringForm, StringMemo]], why: LinkStop, within_s: float
    ) -> None:
        return

    def status(self, link: Link[StringForm, StringMemo]) -> LinkStatus:
        return LinkStatus(state=LinkState.UP)


class TestALinkConnectorPasses(LinkSuite):
    @pytest.fixture
    def connector(self) -> Connector:
        return StringAndCans()

    @pytest.fixture
    def form(self) -> Form:
        return StringForm(host="gpu.example")


def _failed(pytester: pytest.Pytester, source: str) -> dict[str, Any]:
    pytester.makeini(RULES)
    pytester.makepyfile(source)
    outcome: Any = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    return dict(outcome.parseoutcomes()) | {"text": outcome.stdout.str()}


STORAGE = """
import pytest
from codefyui_core.testing.doubles import *
from codefyui_core.testing.suites import StorageSuite

class TestIt(StorageSuite):
    @pytest.fixture
    def backend(self, tmp_path):
        return {backend}
"""


@pytest.mark.parametrize(
    ("backend", "found"),
    [
        ("CorruptBackend(tmp_path, times=9)", "test_inputs_arrive_whole"),
        ("RefusingBackend(tmp_path, at=[Step.PUBLISH])", "test_an_output_arrives_whole_and_can_be_read"),
        ("CrashingBackend(tmp_path, at=[Step.DISCARD])", "test_kept_kinds_stay"),
        ("CrashingBackend(tmp_path, at=[Step.RENEW])", "test_settling_and_renewing_bear_repetition"),
    ],
)
def test_the_storage_suite_finds_a_faulty_backend(
    pytester: pytest.Pytester, backend: str, found: str
) -> None:
    outcome = _failed(pytester, STORAGE.format(backend=backend))
    assert outcome["failed"] >= 1
    assert (
        f"FAILED {Path('test_the_storage_suite_finds_a_faulty_backend.py')}::TestIt::{found}"
        in outcome["text"]
    )


CATALOG = """
import pytest
from codefyui_core.plugin import *
from codefyui_core.testing.suites import CatalogSuite

class Faulty(Node):
    type = "Faulty"
    category = "Test"
    description = "A node with a fault."
    {fault}
    def execute(self, inputs, params, context):
        return {{}}

class Pack(NodeCatalog):
    name = "faulty"
    title = "Faulty"
    {pack}
    def nodes(self):
        return [Faulty]

class TestIt(CatalogSuite):
    heavy = ()
    @pytest.fixture
    def catalog(self):
        return Pack()
"""


@pytest.mark.parametrize(
    ("fault", "pack", "found"),
    [
        ("outputs = (Port(name='a', type='HUE'),)", "", "test_port_types_are_known"),
        ("outputs = (Port(name='a', type='ANY'),) * 2", "", "test_port_and_param_names_are_unique"),
        ("params = (Param(name='a', kind=ParamKind.INT, default=0.5),)", "", "test_defaults_are_values"),
        (
            "params = (Param(name='a', kind=ParamKind.INT, default=9, maximum=3),)",
            "",
            "test_defaults_are_values",
        ),
        ("params = (Param(name='a', kind=ParamKind.SELECT, default='x'),)", "", "test_defaults_are_values"),
        ("inputs = (Port(name='a_{n}', type='ANY'),)", "", "test_repeated_ports_follow"),
        (
            "params = (Param(name='a', kind=ParamKind.INT, default=1, visible_when={'b': 1}),)",
            "",
            "test_conditions_name_params",
        ),
        ("description = ''", "", "test_every_node_says"),
        ("", "namespace = 'A B'", "test_the_descriptor_is_one"),
        ("", "def presets(self): return [Preset(document={'nodes': []})]", "test_presets_have_a_name"),
    ],
)
def test_the_catalog_suite_finds_a_faulty_node(
    pytester: pytest.Pytester, fault: str, pack: str, found: str
) -> None:
    outcome = _failed(pytester, CATALOG.format(fault=fault, pack=pack))
    assert outcome["failed"] >= 1
    assert f"::TestIt::{found}" in outcome["text"]


CONNECTOR = """
import pytest
from codefyui_core.testing.doubles import CrashingConnector
from codefyui_core.testing.suites import ConnectorSuite

class TestIt(ConnectorSuite):
    @pytest.fixture
    def connector(self):
        return CrashingConnector()
"""


def test_the_connector_suite_finds_one_that_cannot_dial(pytester: pytest.Pytester) -> None:
    outcome = _failed(pytester, CONNECTOR)
    assert "::TestIt::test_one_dial_carries_requests_and_a_websocket" in outcome["text"]
    assert "::TestIt::test_a_dead_address_is_explained_and_retried" in outcome["text"]
