"""Requests of plugins to the control plane, over the agent's own dial and with its credential."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp
from pydantic import JsonValue

from codefyui_core.errors import Busy, CodefyError, LinkProblem, Refused
from codefyui_core.plugin.connector import Purpose

PIECE_BYTES = 1 << 20
"""Of what is received at once: a large file in small pieces costs as much for the pieces as for their bytes."""
RETRIED = frozenset({408, 429, 502, 503, 504, 507})
"""507: the disk there is full, and may not stay so."""
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
"""A large file over a slow line takes as long as it takes; silence ends a request. What is sent into nowhere ends with
the session, whose beats find that out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to reach the control plane now."""

    http: aiohttp.ClientSession
    base_url: str
    headers: Mapping[str, str]
    diagnose: Callable[[BaseException, Purpose], Awaitable[LinkProblem]]
    """What a connection that can't be made means, in the connector's words."""


class AgentHttp:
    """Implements ``plugin.hosts.ControlHttp``. ``way`` answers None while there is no connection."""

    def __init__(self, way: Callable[[], Way | None], fence: str | None = None) -> None:
        self._way = way
        self._fence = fence

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: JsonValue = None,
        data: bytes | AsyncIterable[bytes] | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._request(method, path, headers or {}, params, json, data)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None,
        json: JsonValue,
        data: bytes | AsyncIterable[bytes] | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        way = self._way()
        if way is None:
            raise Busy("There is no connection to the control plane.")
        fence = {} if self._fence is None else {"X-CodefyUI-Attempt": self._fence}
        try:
            async with way.http.request(
                method,
                way.base_url + path,
                headers={**way.headers, **fence, **headers},
                params=params,
                json=json,
                data=data,
                timeout=TIMEOUT,
                allow_redirects=False,
                read_bufsize=PIECE_BYTES,
            ) as response:
                await _check(response)
                _take_large_pieces(response)
                yield response
        except aiohttp.ClientConnectorError as error:
            problem = await way.diagnose(error, Purpose.TRANSFER)
            raise Busy(problem.message) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Busy(f"The control plane can't be reached: {error}") from error
        except (AssertionError, RuntimeError) as error:
            # The connection that it belongs to ended in the middle of the request's beginning.
            if way.http.closed:
                raise Busy("The connection to the control plane ended meanwhile.") from error
            raise


def _take_large_pieces(response: aiohttp.ClientResponse) -> None:
    """Of the transports of asyncio, those over a plain socket let one say how much they receive at once (256 KiB unless
    told); the others don't know the word.
    """
    transport = None if response.connection is None else response.connection.transport
    if transport is not None and hasattr(transport, "max_size"):
        transport.max_size = PIECE_BYTES


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    error = await refusal_of(response)
    if response.status in RETRIED:
        after = response.headers.get("Retry-After", "")
        raise Busy(error.message, code=error.code, retry_after_s=float(after) if after.isdigit() else None)
    raise Refused(error.message, code=error.code)


async def refusal_of(response: aiohttp.ClientResponse) -> CodefyError:
    """The server's own code and message; ``proxy.<status>`` when somebody else answered."""
    try:
        body = await response.json(content_type=None)
    except (aiohttp.ClientError, ValueError, TimeoutError):
        body = None
    if isinstance(body, dict) and isinstance(body.get("code"), str):
        return CodefyError(str(body.get("detail") or response.reason), code=body["code"])
    return CodefyError(f"the answer was {response.status} {response.reason}", code=f"proxy.{response.status}")
