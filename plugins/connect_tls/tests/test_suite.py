"""The TLS connector holds to what every connector promises."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cdui_develop.certificates import Issued, self_signed, server_context
from codefyui_connect_tls.connector import TlsConnector
from codefyui_core.plugin import Connector, JsonObject
from codefyui_core.testing.suites import ConnectorSuite
from codefyui_core.testing.suites.connector import serving


class TestTlsHoldsToTheContract(ConnectorSuite):
    @pytest.fixture
    def connector(self) -> Connector:
        return TlsConnector()

    @pytest.fixture
    def issued(self) -> Issued:
        return self_signed("elsewhere.example")

    @pytest.fixture
    def options(self, issued: Issued) -> JsonObject:
        return {"ca_fingerprint": [issued.fingerprint]}

    @pytest.fixture
    async def url(self, issued: Issued, tmp_path: Path) -> AsyncIterator[str]:
        context = server_context()
        issued.serve_by(context, tmp_path)
        async with serving(context) as address:
            yield address

    @pytest.fixture
    def dead_url(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"https://127.0.0.1:{free.getsockname()[1]}"
