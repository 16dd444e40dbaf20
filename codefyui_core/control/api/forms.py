"""Files out of ``multipart/form-data`` (RFC 7578), counted as they arrive."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from aiohttp import BodyPartReader, MultipartReader, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from codefyui_core.errors import CodefyError

MAX_PARTS = 100
CHUNK_BYTES = 256 * 1024
FIELD = "file"
MALFORMED = (ValueError, AssertionError, RuntimeError, LookupError, HttpProcessingError)
"""What aiohttp raises at forms that are none."""


class _Counted:
    """A body that ends with an error once more than ``limit`` bytes of it have been read."""

    def __init__(self, content: StreamReader, limit: int) -> None:
        self._content = content
        self._limit = limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        return self._count(await self._content.read(n))

    async def readline(self, **limits: int) -> bytes:
        return self._count(await self._content.readline(**limits))

    def _count(self, data: bytes) -> bytes:
        if self._content.total_bytes > self._limit:
            raise CodefyError(
                f"The form is larger than {self._limit} bytes; this route takes no more.",
                code="request.too_large",
            )
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class FormFile:
    """One file of a form, not read yet."""

    name: str | None
    part: BodyPartReader
    content: StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        """Raises: CodefyError ``request.invalid`` when the form breaks off, ``request.too_large``."""
        try:
            while chunk := await self.part.read_chunk(CHUNK_BYTES):
                yield chunk
        except MALFORMED as error:
            raise unreadable(str(error) or "it breaks off") from None
        if self.content.at_eof():  # the boundary after a whole part is still there to be read
            raise unreadable("it breaks off")


async def files_of(request: web.Request, limit: int) -> AsyncIterator[FormFile]:
    """The parts named ``file``; others are passed over.

    Raises: CodefyError ``request.invalid`` for what is no form or breaks off, ``request.too_large``.
    """
    if not request.content_type.startswith("multipart/"):
        raise unreadable("send the file as multipart/form-data, in the field file")
    try:
        reader = MultipartReader(request.headers, _Counted(request.content, limit))  # type: ignore[arg-type]
        parts = 0
        while (part := await reader.next()) is not None:
            parts += 1
            if parts > MAX_PARTS:
                raise unreadable(f"it has more than {MAX_PARTS} parts")
            if not isinstance(part, BodyPartReader):
                raise unreadable("it holds another form")
            if part.name == FIELD:
                yield FormFile(name=part.filename, part=part, content=request.content)
    except MALFORMED as error:
        raise unreadable(str(error) or "it breaks off") from None


def unreadable(why: str) -> CodefyError:
    """What is wrong with a form."""
    return CodefyError(f"The form can't be read: {why}.", code="request.invalid")
