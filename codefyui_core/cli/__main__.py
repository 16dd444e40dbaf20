"""``cdui``: runs a command and turns whatever it raises into a message and an exit status."""

import sys
from collections.abc import Mapping, Sequence

from .context import Context
from .errors import run_explained
from .root import make_root


def main(argv: Sequence[str] | None = None, *, environ: Mapping[str, str] | None = None) -> int:
    """Run one command; the answer is the exit status of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    context = Context(environ=environ)
    root = make_root()
    return run_explained(lambda: root.main(arguments, prog_name="cdui", obj=context, standalone_mode=False))


if __name__ == "__main__":
    sys.exit(main())
