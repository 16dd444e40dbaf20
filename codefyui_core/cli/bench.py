"""``cdui bench``: the benchmarks of a checkout, which lie beside the packages and aren't installed with them."""

import subprocess
import sys
from pathlib import Path

import click

from ..errors import StartProblem
from .context import Context
from .options import json_option


@click.command("bench")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--quick", is_flag=True, help="Little work: shows that the benchmarks work, not how fast it is."
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the JSON file.  [default: benchmarks/results]",
)
@json_option
@click.pass_obj
def bench_command(context: Context, *, names: tuple[str, ...], quick: bool, results: Path | None) -> int:
    """Measure this checkout, each figure beside a baseline. Names: engine-overhead, events, drain, fleet,
    dead-line, queue, memory, start, first-node; without one, all.
    """
    root = context.install.root
    if root is None or not (root / "benchmarks" / "__main__.py").is_file():
        raise StartProblem(
            "The benchmarks are part of a checkout. Clone CodefyUI and run ./cdui bench in its folder."
        )
    flags = [*(["--quick"] if quick else []), *(["--json"] if context.as_json else [])]
    folder = [] if results is None else ["--results", str(results.absolute())]
    command = [sys.executable, "-m", "benchmarks", *names, *flags, *folder]
    return subprocess.run(command, cwd=root, check=False).returncode
