"""A small S3 and STS that keeps what it was asked and answers as a test wants. Signatures aren't checked."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """Behind the bucket, in path style."""
        return self.path.removeprefix("/").partition("/")[2]

    @property
    def access_key(self) -> str:
        """Who signed."""
        return self.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]

    @property
    def signed_at(self) -> datetime:
        """By whose clock it is signed, in a header or in the address."""
        stamp = self.headers.get("x-amz-date") or self.query["X-Amz-Date"]
        return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


@dataclass(frozen=True)
class Says:
    """One answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def error(code: str, status: int = 400, message: str = "no", **headers: str) -> Says:
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Says(status, text.encode(), headers)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _meta(asked: Asked) -> dict[str, str]:
    return {name: text for name, text in asked.headers.items() if name.startswith("x-amz-meta-")}


def sts_error(code: str, status: int = 403) -> Says:
    text = (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"
    )
    return Says(status, text.encode())


@dataclass
class Stub:
    """``rule`` is asked first and may answer; else objects are kept in memory, and AssumeRole gives keys that are
    numbered: TEMPORARY1, TEMPORARY2, …
    """

    rule: Callable[[Asked], Says | None] = lambda _: None
    asked: list[Asked] = field(default_factory=list)
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    life_s: float | None = None
    """Of temporary keys; None: as asked."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _n_keys: int = 0
    _meta: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of multipart uploads, also of those that ended."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self.server = _Quiet(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def of(self, method: str, *words: str) -> list[Asked]:
        """Requests of one method whose query names all the words."""
        return [
            one for one in self.asked if one.method == method and all(word in one.query for word in words)
        ]

    @property
    def assumed(self) -> list[dict[str, str]]:
        return [one.form for one in self.asked if one.method == "POST" and one.path == "/"]

    def lose(self, asked: Asked) -> Says:
        """Do it, and let the answer get lost."""
        with self._lock:
            self._do(asked)
        return error("InternalError", 500)

    def answer(self, asked: Asked) -> Says:
        with self._lock:
            self.asked.append(asked)
        said = self.rule(asked)
        if said is not None:
            return said
        with self._lock:
            return self._do(asked)

    def _do(self, asked: Asked) -> Says:
        if asked.method == "POST" and asked.path == "/":
            return self._assume(asked)
        if "uploadId" in asked.query or "uploads" in asked.query:
            return self._multipart(asked)
        if asked.method == "PUT":
            if asked.headers.get("if-none-match") == "*" and asked.path in self.objects:
                return error("PreconditionFailed", 412)
            return self._keep(asked.path, asked.body, _meta(asked))
        if asked.method == "DELETE":
            self.objects.pop(asked.path, None)
            return Says(204)
        if "list-type" in asked.query:
            return self._list(asked)
        if asked.path not in self.objects:
            return error("NoSuchKey", 404)
        return self._give(asked)

    def _keep(self, path: str, body: bytes, meta: dict[str, str], etag: str = "") -> Says:
        tag = f'"{etag or _md5(body)}"'
        self.objects[path] = (body, {**meta, "ETag": tag})
        return Says(headers={"ETag": tag})

    def _give(self, asked: Asked) -> Says:
        body, headers = self.objects[asked.path]
        first, _, last = asked.headers.get("range", "").removeprefix("bytes=").partition("-")
        if not first:
            return Says(body=body, headers=headers)
        return Says(206, body[int(first) : int(last) + 1 if last else None], headers)

    def _list(self, asked: Asked) -> Says:
        bucket, query = f"{asked.path.rstrip('/')}/", asked.query
        keys = sorted(path.removeprefix(bucket) for path in self.objects if path.startswith(bucket))
        after = query.get("start-after", "")
        wanted = [key for key in keys if key.startswith(query.get("prefix", "")) and key > after]
        count = int(query.get("max-keys", "1000"))
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(self.objects[bucket + key][0])}</Size></Contents>"
            for key in wanted[:count]
        )
        truncated = "true" if len(wanted) > count else "false"
        text = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{entries}</ListBucketResult>"
        return Says(body=text.encode())

    def _multipart(self, asked: Asked) -> Says:
        if asked.method == "POST" and "uploads" in asked.query:
            upload_id = f"upload-{len(self._meta) + 1}"
            self.uploads[upload_id] = {}
            self._meta[upload_id] = _meta(asked)
            text = f"<R><UploadId>{upload_id}</UploadId><Key>{asked.key}</Key></R>"
            return Says(body=text.encode())
        parts = self.uploads.get(asked.query["uploadId"])
        if parts is None:
            return error("NoSuchUpload", 404)
        if asked.method == "PUT":
            parts[int(asked.query["partNumber"])] = asked.body
            return Says(headers={"ETag": f'"{_md5(asked.body)}"'})
        if asked.headers.get("if-none-match") == "*" and asked.path in self.objects:
            return error("PreconditionFailed", 412)
        del self.uploads[asked.query["uploadId"]]
        if asked.method == "DELETE":
            return Says(204)
        whole = b"".join(body for _, body in sorted(parts.items()))
        etag = f"{_md5(whole)}-{len(parts)}"
        self._keep(asked.path, whole, self._meta[asked.query["uploadId"]], etag)
        return Says(body=f'<R><ETag>"{etag}"</ETag><Key>{asked.key}</Key></R>'.encode())

    def _assume(self, asked: Asked) -> Says:
        self._n_keys += 1
        life_s = float(asked.form["DurationSeconds"]) if self.life_s is None else self.life_s
        until = (self.clock() + timedelta(seconds=life_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>TEMPORARY{self._n_keys}</AccessKeyId>"
            f"<SecretAccessKey>temporary-secret-{self._n_keys}</SecretAccessKey>"
            f"<SessionToken>session-token-{self._n_keys}</SessionToken><Expiration>{until}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )
        return Says(body=text.encode())


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that stops in the middle is what some tests are about."""


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True  # the client stopped in the middle
                return
            asked = Asked(
                method=self.command,
                path=unquote(parts.path),
                query={
                    name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
                },
                headers={name.lower(): text for name, text in self.headers.items()},
                body=body,
            )
            said = stub.answer(asked)
            self.send_response_only(said.status)
            self.send_header("Date", format_datetime(stub.clock(), usegmt=True))
            for name, text in said.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said.body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815  names there

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    return Handler
