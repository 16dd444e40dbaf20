"""Trades an enrollment token for a credential.

The nonce is on disk before the request, so a repeat after a lost reply is the same enrollment.
"""

import asyncio
import logging
import platform
from pathlib import Path

import aiohttp

from codefyui_core.errors import CodefyError, LinkProblem
from codefyui_core.plugin.connector import Purpose
from codefyui_core.this_machine import machine_id

from .credentials import CredentialFile, load, new_nonce, save
from .dialer import Dialer
from .http import refusal_of

TRIES = 5
WAIT_S = 1.0


class NotEnrolled(CodefyError):
    """The control plane refused the token; its own words."""

    default_code = "enrollment.unknown"


async def enroll(
    dialer: Dialer, *, file: Path, token: str, name: str, log: logging.Logger, alone: bool = True
) -> CredentialFile:
    """Answers the stored credential. ``alone``: nobody else enrolls for that file now, so an enrollment that broke
    off may be repeated; otherwise nothing is written before there is a credential.

    Raises: NotEnrolled with the server's code and words; LinkProblem when it can't be reached.
    """
    if alone:
        pending = await asyncio.to_thread(_pending, file, dialer.url(), name, log)
    else:
        pending = CredentialFile(url=dialer.url(), name=name, nonce=new_nonce())
    last: LinkProblem | None = None
    for attempt in range(TRIES):
        try:
            return await _once(dialer, pending, file, token, name)
        except (aiohttp.ClientError, OSError, TimeoutError, LinkProblem) as error:
            last = await dialer.diagnose(error, Purpose.ENROLL)
            if last.exit_code is not None:
                raise last from error
            log.warning("enrollment: %s", last.message)
        if attempt + 1 < TRIES:
            await asyncio.sleep(WAIT_S * 2**attempt)
    assert last is not None
    raise last


def _pending(file: Path, url: str, name: str, log: logging.Logger) -> CredentialFile:
    before = load(file, log)
    if before is not None and before.nonce and not before.enrolled and before.name == name:
        return before
    pending = CredentialFile(url=url, name=name, nonce=new_nonce())
    save(file, pending)
    return pending


async def _once(dialer: Dialer, pending: CredentialFile, file: Path, token: str, name: str) -> CredentialFile:
    request = {
        "token": token,
        "name": name,
        "nonce": pending.nonce,
        "machine_id": machine_id(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    async with asyncio.timeout(60), dialer.dial() as (dial, http):
        url = f"{dial.base_url.rstrip('/')}/api/workers/enroll"
        async with http.post(url, json=request, allow_redirects=False) as response:
            if response.status != 200:
                await _refused(response)
            answer = await response.json()
        enrolled = CredentialFile(
            url=pending.url,
            name=str(answer["name"]),
            worker_id=str(answer["worker_id"]),
            db_id=str(answer["db_id"]),
            credential=str(answer["credential"]),
        ).keeping(dialer.name, dial.keep)
        await asyncio.to_thread(save, file, enrolled)
        return enrolled


async def _refused(response: aiohttp.ClientResponse) -> None:
    error = await refusal_of(response)
    if response.status in {500, 502, 503, 504}:
        raise LinkProblem(f"enrollment: {error.message}")
    hint = ""
    if error.code.startswith("proxy."):
        hint = " It wasn't a CodefyUI server that answered: look at the proxy in between."
    raise NotEnrolled(f"The enrollment was refused: {error.message}{hint}", code=error.code)
