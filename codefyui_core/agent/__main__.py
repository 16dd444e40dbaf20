"""The process of an agent: ``python -m codefyui_core.agent`` with an AgentPlan on standard input."""

import asyncio
import logging
import os
import sys
from pathlib import Path

from codefyui_core.errors import CodefyError, LinkProblem, UsageProblem
from codefyui_core.freed_memory import keep_freed_memory
from codefyui_core.settings import Install

from .background import saying_ready, write_pid
from .lock import AlreadyRunning, remove_own
from .main import run_agent
from .one_run import Status
from .places import Places
from .plan import AgentPlan, absolute_folders

log = logging.getLogger("codefyui.agent")


def run_foreground(plan: AgentPlan, *, ready_fd: int | None = None) -> int:
    """Run the agent in this process. The answer is the exit status."""
    os.environ.update(absolute_folders(os.environ, Path.cwd()))
    set_up_logging()
    keep_freed_memory()
    try:
        return asyncio.run(_run(plan, ready_fd))
    except CodefyError as error:
        log.error("%s", error.message)
        return status_of(error, one_shot=plan.one_shot)


async def _run(plan: AgentPlan, ready_fd: int | None) -> int:
    install = Install.find()
    places = Places(user_data=install.user_data, key=plan.key)
    tell = saying_ready(ready_fd)

    def connected(name: str) -> None:
        if plan.background:
            write_pid(places, name=name, url=plan.url or "")
        tell(name)

    try:
        return await run_agent(plan, install, connected=connected)
    finally:
        remove_own(places.pid)


def status_of(error: CodefyError, *, one_shot: bool = False) -> int:
    """2 for what was asked wrongly or refused for good, else 1 (one-shot: 4) for what doesn't work here."""
    if isinstance(error, UsageProblem) or (one_shot and isinstance(error, AlreadyRunning)):
        return 2
    if isinstance(error, LinkProblem) and error.exit_code is not None:
        return error.exit_code
    return Status.NOT_STARTED if one_shot else 1


def set_up_logging() -> None:
    level = logging.DEBUG if os.environ.get("CODEFYUI_DEBUG") else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for noisy in ("aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def main() -> int:
    ready_fd = int(sys.argv[2]) if sys.argv[1:2] == ["--ready-fd"] else None
    plan = AgentPlan.model_validate_json(sys.stdin.buffer.read())
    return run_foreground(plan, ready_fd=ready_fd)


if __name__ == "__main__":
    sys.exit(main())
