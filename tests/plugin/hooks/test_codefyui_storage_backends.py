"""The page of ``codefyui_storage_backends``."""

from collections.abc import Callable
from typing import Any

import pytest

from codefyui_core.errors import StorageProblem
from codefyui_core.loading import Registry
from codefyui_core.plugin import AnyBackend
from codefyui_core.testing.suites import StorageSuite


def test_the_documented_backend_is_loaded(documented: Callable[[str], Registry]) -> None:
    registry = documented("codefyui_storage_backends")
    assert list(registry.backends) == ["same_path"]


class TestTheDocumentedBackend(StorageSuite):
    """All but what its page says that it leaves out: it believes its worker."""

    @pytest.fixture
    def backend(self, documented: Callable[[str], Registry]) -> AnyBackend:
        return documented("codefyui_storage_backends").backends["same_path"]

    async def test_an_output_that_never_came_is_refused(
        self, backend: AnyBackend, control: Any, given: Any
    ) -> None:
        stored = await control.accept(
            given.assignment, self.output("models/never.pt"), self.forged_receipt(backend)
        )
        assert not (await control.read(stored, None)).path.exists()

    async def test_a_discarded_object_is_gone_and_discarding_it_again_is_fine(
        self, control: Any, agent: Any, facts: Any, given: Any
    ) -> None:
        stored = await self.published(control, agent, given)
        await control.discard(self.removal(given, stored))
        await control.discard(self.removal(given, stored))
        with pytest.raises((StorageProblem, FileNotFoundError)):
            await self.bytes_of(await control.read(stored, None))
