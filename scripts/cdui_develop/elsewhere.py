"""``cdui`` as on a machine of its own: a server doesn't take such an agent for one beside it, so files have to travel.

``python scripts/cdui_develop/elsewhere.py MACHINE agent start ...``; a script and no module, so that it works in
environments that have nothing of the tests.
"""

import sys


def main(machine: str, *words: str) -> int:
    """``machine``: any text, another one for another machine."""
    import codefyui_core.this_machine as here
    from codefyui_core.cli.__main__ import main as command

    here._system_id = lambda: f"elsewhere:{machine}"
    return command(words)


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file has modules whose names are others' elsewhere
    sys.exit(main(*sys.argv[1:]))
