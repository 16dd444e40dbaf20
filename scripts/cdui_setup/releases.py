"""Releases of the repository: tags such as ``0.1.0`` or ``v0.1.0``."""

import json
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from .problem import STOP_SERVER_FIRST, SetupProblem

ASK_S = 3.0
_RELEASE = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def newest(tags: Iterable[str]) -> str | None:
    """The highest release; other tags don't count."""
    releases = [tag for tag in tags if _RELEASE.fullmatch(tag)]
    return max(releases, key=_order, default=None)


def matching(wanted: str, tags: Iterable[str]) -> str | None:
    """The tag of a release, with or without ``v`` on either side."""
    number = wanted.removeprefix("v")
    known = set(tags)
    return next((tag for tag in (wanted, number, f"v{number}") if tag in known), None)


def _order(tag: str) -> tuple[int, ...]:
    found = _RELEASE.fullmatch(tag)
    return tuple(map(int, found.groups())) if found else ()


def check_out(root: Path, wanted: str | None) -> str:
    """Bring the checkout to a release (the newest when None); the answer is its tag.

    Raises: SetupProblem.
    """
    if not (root / ".git").exists():
        raise SetupProblem(
            f"{root} is no git checkout, so it can't be updated here. Install the new version with install.sh, "
            "or with the package manager that installed this one."
        )
    _git(root, "fetch", "--quiet", "--tags", "--force")
    tags = _git(root, "tag", "--list").split()
    tag = newest(tags) if wanted is None else matching(wanted, tags)
    if tag is None:
        raise SetupProblem(_not_found(wanted, tags))
    _git(root, "checkout", "--quiet", tag)
    return tag


def _not_found(wanted: str | None, tags: Iterable[str]) -> str:
    releases = sorted((tag for tag in tags if _RELEASE.fullmatch(tag)), key=_order)
    known = (
        f"The newest ones: {', '.join(releases[-5:])}." if releases else "The repository has no release tags."
    )
    return known if wanted is None else f"There is no release {wanted}. {known}"


def _git(root: Path, *words: str) -> str:
    ended = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SetupProblem(
            f"git {words[0]} failed: {ended.stderr.strip()}\nNothing was changed. Settle that, then update again."
        )
    return ended.stdout


def refuse_while_running(root: Path) -> None:
    """Raises: SetupProblem with status 3 while the server of this user data folder runs."""
    folder = user_data(root)
    process = running_server(folder)
    if process is None:
        return
    lines = [f"The server is running (process {process}). Stop it first: cdui stop --keep-runs"]
    if kept := runs_if_kept(folder):
        lines += ["With that:", *(f"  {line}" for line in kept)]
        lines.append("An agent of the old version finishes its runs, and is refused after the last one.")
    raise SetupProblem("\n".join(lines), exit_code=STOP_SERVER_FIRST)


def runs_if_kept(folder: Path) -> list[str]:
    """What the running server says would become of its runs; nothing when it can't be asked."""
    try:
        url = json.loads((folder / "server.json").read_text())["url"]
        token = (folder / "session.token").read_text().strip()
        request = Request(f"{url}/api/server/stop", headers={"X-CodefyUI-Token": token})  # noqa: S310  ours
        with build_opener(ProxyHandler({})).open(request, timeout=ASK_S) as answer:
            lines = json.load(answer)["if_kept"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [str(line) for line in lines] if isinstance(lines, list) else []


def user_data(root: Path) -> Path:
    return Path(os.environ.get("CODEFYUI_USER_DATA_DIR") or root / ".codefyui_dev").expanduser()


def running_server(folder: Path) -> int | None:
    """The process that ``server.json`` names, when it lives."""
    try:
        process = int(json.loads((folder / "server.json").read_text())["pid"])
        os.kill(process, 0)
    except PermissionError:
        return process
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return process
