"""``bootstrap.py ensure | install | update``; called by the launcher with ``CODEFYUI_DIR`` set."""

import argparse
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from .console import say
from .layout import Layout
from .lock import locked
from .problem import SetupProblem
from .releases import check_out, refuse_while_running
from .steps import Setup
from .torch_build import Accelerators, check_choice

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit status."""
    arguments = _parser().parse_args(argv)
    root = Path(os.environ.get("CODEFYUI_DIR") or Path(__file__).resolve().parents[2])
    try:
        if arguments.command == "update":
            _update(root, arguments.tag)
        choice = getattr(arguments, "gpu", None) or os.environ.get("CODEFYUI_GPU") or None
        _set_up(root, choice, dev=getattr(arguments, "dev", False), told=arguments.command == "install")
    except SetupProblem as problem:
        say(f"cdui: {problem}")
        return problem.exit_code
    except KeyboardInterrupt:
        say("\ncdui: interrupted; run the command again to go on.")
        return INTERRUPTED
    return 0


def _set_up(root: Path, choice: str | None, *, dev: bool, told: bool) -> None:
    setup = Setup(
        layout=Layout(root),
        digest=os.environ.get("CDUI_DIGEST", ""),
        machine=Accelerators.look(),
        choice=None if choice is None else check_choice(choice),
    )
    with _locked(root):
        if setup.is_done(dev=dev):
            if told:
                say("cdui: everything is installed already")
            return
        if told:
            refuse_while_running(root)
        setup.run(dev=dev)


def _locked(root: Path) -> AbstractContextManager[None]:
    lock = Layout(root).state / "lock"
    return locked(lock, lambda: say("cdui: another cdui is setting up here; waiting for it"))


def _update(root: Path, tag: str | None) -> None:
    """Ends in the launcher of the new version, which may install differently."""
    refuse_while_running(root)
    with _locked(root):
        say(
            f"cdui: now at {check_out(root, tag)}; start the server and the agents of this machine again after it"
        )
    os.execv(root / "cdui", ["cdui", "install"])  # noqa: S606  no shell wanted


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cdui")
    commands = parser.add_subparsers(dest="command", required=True)
    ensure = commands.add_parser("ensure", help="set up what isn't yet")
    ensure.add_argument("--dev", action="store_true", help="the tools for tests and checks too")
    install = commands.add_parser("install", help="set up, choosing the build of PyTorch")
    install.add_argument(
        "--gpu",
        metavar="CHOICE",
        help="auto, cpu, a CUDA version (cu126, cu130), a ROCm version (rocm6.3) or xpu; "
        "default: as before, at first CODEFYUI_GPU or auto",
    )
    update = commands.add_parser("update", help="go to another release and set it up")
    update.add_argument("tag", nargs="?", help="such as 0.1.0; default: the newest")
    return parser
