"""Answers to uploads, with a digest (RFC 9530): a hash in one isn't known to whoever gets it, and lines damage answers,
too.
"""

import base64
import hashlib

import aiohttp
from aiohttp import web
from pydantic import ValidationError

from codefyui_core.plugin import Busy

from .models import Uploaded

DIGEST = "Content-Digest"


def answer(found: Uploaded) -> web.Response:
    text = found.model_dump_json()
    return web.json_response(text=text, headers={DIGEST: _digest(text.encode())})


async def said(response: aiohttp.ClientResponse) -> Uploaded:
    """Raises: Busy for an answer that was damaged on its way."""
    body = await response.read()
    try:
        if response.headers.get(DIGEST, _digest(body)) == _digest(body):
            return Uploaded.model_validate_json(body)
    except ValidationError:
        pass
    raise Busy("the answer of the control plane can't be read; the line may have damaged it")


def _digest(body: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
