"""How a run is shown while it is followed."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from codefyui_core.cli.following import TerminalView


def view(*, terminal: bool) -> tuple[TerminalView, StringIO]:
    out = StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, highlight=False, soft_wrap=True)
    return TerminalView(console=console), out


def transfer(index: int, done: int, **more: Any) -> dict[str, Any]:
    payload = {
        "kind": "transfer_progress",
        "detail": f"fetching inputs {index}/2: t[red]rain.csv (1.2 MiB, fetched)",
        "direction": "in",
        "file": "t[red]rain.csv",
        "index": index,
        "count": 2,
        "bytes_done": done,
        "bytes_total": 2048,
    }
    return {"type": "run_warning", "payload": payload | more}


@pytest.mark.spec("transfer/progress-event-kind")
def test_files_under_way_are_plain_lines_where_there_is_no_terminal() -> None:
    shown, out = view(terminal=False)
    shown.show(transfer(1, 2048))
    shown.close()
    assert out.getvalue() == "fetching inputs 1/2: t[red]rain.csv (1.2 MiB, fetched)\n"


def test_files_under_way_are_one_bar_a_direction_on_a_terminal() -> None:
    shown, out = view(terminal=True)
    for event in (transfer(1, 1024), transfer(2, 2048), transfer(1, 5, direction="out", file="m.pt")):
        shown.show(event)
    assert shown.progress is not None
    tasks = shown.progress.tasks
    assert [(task.fields["label"], task.fields["shown"], task.completed) for task in tasks] == [
        ("inputs", "2/2", 2048),
        ("outputs", "1/2", 5),
    ]
    assert tasks[0].description == "t[red]rain.csv  2.00 KiB of 2.00 KiB"
    shown.close()
    assert "t[red]rain.csv" in out.getvalue()


def test_an_empty_file_and_one_without_sizes_are_shown_too() -> None:
    shown, out = view(terminal=True)
    shown.show(transfer(1, 0, bytes_total=0))
    shown.show(transfer(1, 0, bytes_total=None, detail="something goes on"))
    shown.close()
    assert "something goes on" in out.getvalue()


def test_epochs_have_their_bar_and_other_warnings_their_line() -> None:
    shown, out = view(terminal=True)
    report = {"event": "epoch", "epoch": 2, "total_epochs": 5, "loss": 0.5}
    outputs = [{"output_kind": "progress", "progress": report}]
    shown.show(
        {"type": "node_status", "payload": {"node_id": "train", "status": "running", "outputs": outputs}}
    )
    shown.show({"type": "run_warning", "payload": {"kind": "transfer_failed", "detail": "m.pt stays"}})
    assert shown.progress is not None
    (task,) = shown.progress.tasks
    assert (task.fields["label"], task.fields["shown"], task.description) == ("train", "2/5", "loss 0.5000")
    shown.close()
    assert "warning: m.pt stays" in out.getvalue()
