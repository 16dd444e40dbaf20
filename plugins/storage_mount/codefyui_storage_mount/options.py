"""``--mount LABEL=PATH``: what was given, merged with what was saved."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from codefyui_core.plugin import JsonObject, StartProblem, UsageProblem

from .models import LABEL, Saved
from .sight import NoAnswer, is_folder

if TYPE_CHECKING:
    import click


def mount_option() -> "click.Option":
    import click

    return click.Option(
        ["--mount"],
        multiple=True,
        metavar="LABEL=PATH",
        help="PATH is where this machine has the folder that the server shares as LABEL (data, unless the "
        "server says otherwise). Saved for later starts; LABEL= forgets it. May be repeated.",
    )


def merged(given: object, saved: JsonObject) -> JsonObject:
    """What ``agent.json`` is to hold. Relative paths count from the working folder.

    Raises: UsageProblem for a text of another form; StartProblem for a folder that isn't there.
    """
    mounts = dict(Saved.read(saved).mounts)
    seen: set[str] = set()
    for text in cast("Iterable[str]", given):
        label, path = _parts(text)
        if label in seen:
            raise UsageProblem(f"--mount names the label {label} twice. Give each label one path.")
        seen.add(label)
        if path:
            mounts[label] = str(_folder(label, path))
        else:
            mounts.pop(label, None)
    return Saved(mounts=mounts).to_json()


def _parts(text: str) -> tuple[str, str]:
    label, equals, path = text.partition("=")
    if not equals or not re.fullmatch(LABEL, label):
        raise UsageProblem(
            f"--mount {text}: give it as LABEL=PATH, such as --mount data=/nas/codefyui/data. A label has "
            "letters, digits, - and _."
        )
    return label, path


def _folder(label: str, text: str) -> Path:
    path = _absolute(text)
    try:
        found = is_folder(path)
    except NoAnswer as error:
        raise StartProblem(
            f"--mount {label}={text}: {path} doesn't answer. See whether its file server can be reached."
        ) from error
    if not found:
        raise StartProblem(
            f"--mount {label}={text}: there is no folder {path} that this user can read. Mount the share "
            "first, or correct the path."
        )
    return path


def _absolute(text: str) -> Path:
    """Raises: UsageProblem for ``~`` of a user that there isn't, and for a name that no message can hold."""
    try:
        text.encode()
        return Path(text).expanduser().absolute()
    except (RuntimeError, UnicodeEncodeError) as error:
        raise UsageProblem(f"--mount: {text!a} can't be the path of a mount: {error}.") from error
