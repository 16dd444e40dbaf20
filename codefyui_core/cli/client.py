"""The running server as commands see it: where it is, and blocking calls of its API.

Proxies of the environment are left alone on purpose: the server is this user's own.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import JsonValue

from ..errors import CodefyError
from ..plugin.values import JsonObject
from ..settings import Install, Source
from .errors import NoServer
from .sse import ServerEvent, parse_events

PROBE_TIMEOUT_S = 2.0
CALL_TIMEOUT_S = 60.0
SILENCE_S = 45.0
"""Three missed beats of an event stream."""
PIECE_BYTES = 1 << 20
PARTIAL = 206
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class ApiProblem(CodefyError):
    """The server refused; ``code`` and message are its own."""

    def __init__(self, status: int, body: JsonObject) -> None:
        detail = body.get("detail")
        message = detail if isinstance(detail, str) else f"The server answered {status}."
        hint = body.get("hint")
        super().__init__(
            f"{message}\n{hint}" if isinstance(hint, str) else message, code=str(body.get("code") or "error")
        )
        self.status = status
        self.body = body
        """The whole answer; ``issues`` of graphs and ``problems`` of forms are in it."""


class Unreachable(CodefyError):
    """The server didn't answer."""

    default_code = "link.unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server and the right to call it."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Server(url={self.url!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Bytes that are on their way."""

    start: int
    """Of the whole: what was asked for, or 0 when everything comes all the same."""
    size_bytes: int | None
    """Of the whole, where it is known."""
    tag: str | None
    """Names the content, for going on with it."""
    pieces: Iterator[bytes]
    """Raises Unreachable when the line breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What ``server.json`` says of the last start."""

    pid: int
    url: str
    boot_id: str
    version: str = ""
    project: str | None = None
    """The folder that it was started with as its project."""

    @classmethod
    def read(cls, user_data: Path) -> "Running | None":
        """None when there is no such file, or it isn't one of ours."""
        try:
            data = json.loads((user_data / "server.json").read_text(encoding="utf-8"))
            return cls(
                pid=int(data["pid"]),
                url=str(data["url"]),
                boot_id=str(data["boot_id"]),
                version=str(data["version"]),
                project=data.get("project"),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def lives(self) -> bool:
        """Its process is there; whether it is still that server only its answer tells."""
        if self.pid <= 0:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def find_server(install: Install) -> Server:
    """The server of this user: as the flags or ``CODEFYUI_HOST``/``_PORT`` say, else as ``server.json`` says.

    Raises: NoServer.
    """
    url = _told(install) or _noted(install)
    return Server(url=url, token=_token(install.user_data))


def _told(install: Install) -> str | None:
    host, port = (install.layers.find(f"CODEFYUI_{name}") for name in ("HOST", "PORT"))
    if host is None and port is None:
        return None
    noted = Running.read(install.user_data)
    told_by_flag = any(found is not None and found[1] is Source.FLAG for found in (host, port))
    if not told_by_flag and noted is not None and _answers(noted):
        return noted.url
    return _url(host[0] if host else "127.0.0.1", port[0] if port else "8000")


def _noted(install: Install) -> str:
    noted = Running.read(install.user_data)
    if noted is None or not noted.lives() or not _answers(noted):
        raise NoServer
    return noted.url


def _url(host: str, port: str) -> str:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        address = ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{address}:{port}" if address.version == 4 else f"http://[{address}]:{port}"


def _answers(noted: Running) -> bool:
    if not noted.lives():
        return False
    try:
        health = HttpApi(Server(url=noted.url, token=""), timeout_s=PROBE_TIMEOUT_S).call(
            "GET", "/api/health"
        )
    except CodefyError:
        return False
    return isinstance(health, dict) and health.get("boot_id") == noted.boot_id


def _token(user_data: Path) -> str:
    try:
        return (user_data / "session.token").read_text(encoding="utf-8").strip()
    except OSError:
        raise NoServer from None


class HttpApi:
    """The server's API with this user's session token. Every call has a connection of its own."""

    def __init__(self, server: Server, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.server = server
        self._timeout_s = timeout_s

    def call(self, method: str, path: str, body: JsonObject | None = None) -> JsonValue:
        """One request; None for an answer without a body.

        Raises: ApiProblem with the server's code and message; Unreachable.
        """
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        with self._open(method, path, headers=headers, data=data, timeout_s=self._timeout_s) as response:
            return cast("JsonValue", _json(response.read()))

    def events(self, path: str, *, after: str | None = None) -> Iterator[ServerEvent]:
        """The events of a ``text/event-stream``, until the server ends it. ``after`` is the last id seen.

        Raises: ApiProblem; Unreachable when the line breaks or stays silent for three beats: call again
        with the id of the last event.
        """
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": after})
        with self._open("GET", path, headers=headers, data=None, timeout_s=SILENCE_S) as response:
            yield from parse_events(line.decode() for line in response)

    def fetch(self, path: str, *, offset: int = 0, tag: str | None = None) -> Fetched:
        """A file from a byte on; from the beginning if it isn't the one that ``tag`` names any more. Followed to where
        the server says that it is, without the session token.

        Raises: ApiProblem; Unreachable.
        """
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            headers |= {} if tag is None else {"If-Range": tag}
        pieces = self._pieces(path, headers)
        status, length, found = cast("tuple[int, str | None, Any]", next(pieces))
        start, size = _span(found.get("Content-Range")) if status == PARTIAL else (0, None)
        if status != PARTIAL and length is not None and length.isdecimal():
            size = int(length)
        return Fetched(
            start=start, size_bytes=size, tag=found.get("ETag"), pieces=cast("Iterator[bytes]", pieces)
        )

    def _pieces(self, path: str, headers: dict[str, str]) -> Iterator[object]:
        """First status, length and headers, then the bytes."""
        opening = self._open("GET", path, headers=headers, data=None, timeout_s=self._timeout_s)
        with opening as answer, _followed(answer, headers, self._timeout_s) as response:
            yield response.status, response.headers.get("Content-Length"), response.headers
            while piece := response.read(PIECE_BYTES):
                yield piece

    @contextmanager
    def _open(
        self, method: str, path: str, *, headers: dict[str, str], data: bytes | None, timeout_s: float
    ) -> Iterator[HTTPResponse]:
        parts = urlsplit(self.server.url)
        connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=timeout_s)
        try:
            connection.request(
                method, path, body=data, headers={"X-CodefyUI-Token": self.server.token} | headers
            )
            with connection.getresponse() as response:
                _check(response)
                yield response
        except (OSError, HTTPException) as error:
            message = f"The server at {self.server.url} doesn't answer: {error}. See: cdui status"
            raise Unreachable(message) from error
        finally:
            connection.close()


@contextmanager
def _followed(answer: HTTPResponse, headers: dict[str, str], timeout_s: float) -> Iterator[Any]:
    """The answer itself, or what is at the address that it names: a bucket, by the user's own proxies."""
    address = answer.headers.get("Location")
    if answer.status not in REDIRECTS or address is None:
        yield answer
        return
    if urlsplit(address).scheme not in {"http", "https"}:
        raise Unreachable(f"The server sends to {address}, which is no web address.")
    try:
        with urlopen(Request(address, headers=headers), timeout=timeout_s) as response:  # noqa: S310  checked above
            yield response
    except HTTPError as error:
        message = f"{urlsplit(address).netloc} answered {error.code}: {error.reason}. Try again."
        raise ApiProblem(error.code, {"detail": message, "code": "storage.refused"}) from error
    except URLError as error:
        message = f"{urlsplit(address).netloc}, where the file is, doesn't answer: {error.reason}"
        raise Unreachable(message) from error


def _span(value: str | None) -> tuple[int, int | None]:
    """``bytes 4-9/10`` -> 4 and 10.

    Raises: Unreachable for an answer that says nothing of the kind.
    """
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", value or "")
    if found is None:
        raise Unreachable("The server's answer doesn't say which part of the file it is. Try again.")
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _check(response: HTTPResponse) -> None:
    if response.status < 400:
        return
    body = _json(response.read())
    raise ApiProblem(response.status, body if isinstance(body, dict) else {})


def _json(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else None
    except ValueError:
        return data.decode(errors="replace")
