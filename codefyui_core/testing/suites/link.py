"""The suite for connectors that keep links, on top of the one for all connectors."""

import asyncio
from typing import Any

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.ids import LinkId
from codefyui_core.plugin import (
    Connector,
    ConnectorControl,
    Form,
    Link,
    LinkConnector,
    LinkControl,
    LinkPhase,
    LinkStatus,
    LinkStop,
)

from .connector import ConnectorSuite


class LinkSuite(ConnectorSuite):
    """Override ``connector`` and ``form``, and ``url`` with an address that reaches a server through a link.

    The form may name a machine that nobody can reach: what is tested is that the half answers at once, bears
    repetition and lets go.
    """

    @pytest.fixture
    def form(self) -> Form:
        """A dialog as a person would fill it in."""
        raise NotImplementedError("override the fixture `form`")

    @pytest.fixture
    def links(self, control: ConnectorControl) -> LinkControl[Any, Any]:
        assert isinstance(control, LinkControl)
        return control

    def test_the_dialog_can_be_drawn_from_its_schema(self, connector: Connector) -> None:
        assert isinstance(connector, LinkConnector)
        fields = connector.form.model_json_schema()["properties"]
        assert all(field.get("title") for field in fields.values())

    def test_the_form_names_a_worker(self, form: Form) -> None:
        assert form.worker_name()

    async def test_a_first_memo_survives_being_stored(
        self, connector: Connector, links: LinkControl[Any, Any], form: Form
    ) -> None:
        assert isinstance(connector, LinkConnector)
        memo = await links.admit(form, ())
        assert isinstance(memo, connector.memo)
        assert connector.memo.model_validate(memo.model_dump(mode="json", context={"reveal": True})) == memo

    async def test_reconcile_may_be_said_twice_and_taken_back(
        self, links: LinkControl[Any, Any], form: Form
    ) -> None:
        link = await self._link(links, form)
        async with asyncio.timeout(30):
            await links.reconcile([link])
            await links.reconcile([link])
            await links.stop([link], LinkStop.SHUTDOWN, 5)
            await links.reconcile([])

    async def test_status_is_answered_for_every_phase_even_of_a_link_never_seen(
        self, links: LinkControl[Any, Any], form: Form
    ) -> None:
        for phase in LinkPhase:
            assert isinstance(links.status(await self._link(links, form, phase)), LinkStatus)

    @pytest.mark.parametrize("why", list(LinkStop))
    async def test_stopping_no_links_is_done_at_once(
        self, links: LinkControl[Any, Any], why: LinkStop
    ) -> None:
        await asyncio.wait_for(links.stop([], why, 1), 5)

    async def test_an_unknown_button_is_refused(self, links: LinkControl[Any, Any], form: Form) -> None:
        with pytest.raises((CodefyError, NotImplementedError)):
            await links.act(await self._link(links, form), "no-such-button")

    async def _link(
        self, links: LinkControl[Any, Any], form: Form, phase: LinkPhase = LinkPhase.ENABLED
    ) -> Link[Any, Any]:
        memo = await links.admit(form, ())
        return Link(
            id=LinkId("0" * 31 + "1"), worker_name=form.worker_name(), form=form, memo=memo, phase=phase
        )
