"""Which file a relative path means on a worker."""

from pathlib import Path

import pytest
from e2e_site import Site, graph

pytestmark = pytest.mark.service

SAMPLE = "data/samples/iris.csv"


def log_lines(site: Site, run_id: str) -> list[str]:
    return [line for e in site.events(run_id) if e["type"] == "log" for line in e["payload"]["lines"]]


@pytest.mark.spec(
    "paths/relative-node-path-means-backend-folder", "paths/agent-start-directory-irrelevant-to-node-paths"
)
def test_a_relative_path_is_below_the_base_folder_wherever_the_agent_was_started(site: Site) -> None:
    site.start_server()
    site.start_agent("box", cwd=Path("/"))
    run_id = site.submit(graph("TrialReadFile", {"path": SAMPLE}), target="box")
    site.wait_status(run_id, "succeeded")
    first = (Path(__file__).parents[2] / "backend" / SAMPLE).read_text().splitlines()[0]
    assert first in log_lines(site, run_id)
    on_server = site.submit(graph("TrialReadFile", {"path": SAMPLE}))
    site.wait_status(on_server, "succeeded")
    assert first in log_lines(site, on_server)


@pytest.mark.spec("paths/relative-agent-setting-kept-against-start-directory")
def test_a_relative_setting_of_the_agent_means_its_start_directory(site: Site, tmp_path: Path) -> None:
    start = tmp_path / "launch"
    start.mkdir()
    site.start_server()
    site.start_agent("box", cwd=start, CODEFYUI_MODELS_DIR="models")
    run_id = site.submit(graph("TrialNote", {"name": "note.bin"}), target="box")
    site.wait_status(run_id, "succeeded")
    assert (start / "models" / "note.bin").read_bytes() == b"note"


def test_a_path_outside_is_refused_and_names_the_setting(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("a line\n")
    site.start_server()
    row = site.wait_end(site.submit(graph("TrialReadFile", {"path": str(outside)})))
    assert row["status"] == "failed"
    assert "CODEFYUI_EXTRA_DATA_DIRS" in row["error"]


def test_a_listed_folder_may_be_read(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "more" / "outside.txt"
    outside.parent.mkdir()
    outside.write_text("a line\n")
    site.start_server(CODEFYUI_EXTRA_DATA_DIRS=str(outside.parent))
    run_id = site.submit(graph("TrialReadFile", {"path": str(outside)}))
    site.wait_status(run_id, "succeeded")
    assert "a line" in log_lines(site, run_id)
