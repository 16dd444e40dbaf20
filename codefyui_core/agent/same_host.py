"""The agent of the server of the same user data: finds it, and enrolls without anybody's help.

The session token asks for an enrollment token and is used for nothing else; never on ``/ws/worker``.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from codefyui_core.errors import LinkProblem, StartProblem

TOKEN_S = 600
ANSWER_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The server of this user data, as it wrote itself down."""

    user_data: Path

    @property
    def url(self) -> str:
        """Where it listens now; read at each dial, as a restart may have moved it.

        Raises: LinkProblem while none has been started here.
        """
        try:
            noted: Any = json.loads((self.user_data / "server.json").read_text(encoding="utf-8"))
            return str(noted["url"])
        except (OSError, ValueError, KeyError, TypeError):
            raise LinkProblem(
                "No server is running here. Start it with cdui start, or give another one's address "
                "with --control."
            ) from None

    def session_token(self) -> str:
        """Raises: StartProblem."""
        try:
            return (self.user_data / "session.token").read_text(encoding="utf-8").strip()
        except OSError as error:
            raise StartProblem(f"The server's session token can't be read: {error}.") from error


async def ask_for_token(http: aiohttp.ClientSession, server: Server, name: str) -> str:
    """A one-use enrollment token of ten minutes. If the worker of that name is this machine's already, the
    token re-keys it.

    Raises: LinkProblem, aiohttp.ClientError, OSError, TimeoutError.
    """
    headers = {"X-CodefyUI-Token": server.session_token()}
    async with asyncio.timeout(ANSWER_S), http.get(f"{server.url}/api/workers", headers=headers) as response:
        await _check(response)
        rows = (await response.json())["workers"]
    known = next((row for row in rows if row["name"].lower() == name.lower()), None)
    if known is not None and not known["same_host"]:
        raise StartProblem(
            f"The name {name} belongs to a worker on another machine. Choose another with --name."
        )
    body = {"valid_s": TOKEN_S, "uses": 1} | ({} if known is None else {"worker": known["name"]})
    url = f"{server.url}/api/workers/tokens"
    async with asyncio.timeout(ANSWER_S), http.post(url, headers=headers, json=body) as response:
        await _check(response)
        return str((await response.json())["token"])


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        text = (await response.text())[:500]
        raise LinkProblem(f"The server answered {response.status} to {response.url.path}: {text}")
