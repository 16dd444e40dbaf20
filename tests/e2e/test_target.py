"""Where a run goes: by the API and by the command line."""

import json
from pathlib import Path

import pytest
from e2e_site import Site, graph

from codefyui_core.cli.client import ApiProblem

pytestmark = pytest.mark.service


def cdui(site: Site, *words: str, within_s: float = 90) -> tuple[int, str]:
    process = site.spawn("cdui", ["-m", "codefyui_core.cli", *words], user_data=site.user_data)
    return process.wait(int(within_s)), process.said()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "count.json"
    path.write_text(json.dumps(graph("TrialCount", {"n": 3})))
    return path


@pytest.mark.spec("target/cli-run-target-flag")
def test_the_command_line_aims_a_run_at_a_worker(shared_site: Site, file: Path) -> None:
    code, said = cdui(shared_site, "run", str(file), "--target", "box")
    assert code == 0, said
    run_id = said.strip().splitlines()[-1].split()[1]
    assert said.strip().endswith(f"run {run_id} succeeded")
    row = shared_site.run(run_id)
    assert (row["target"], row["worker"]) == ({"worker": "box"}, "box")


def test_the_command_answers_a_bad_ending_by_its_status_and_reason(shared_site: Site, tmp_path: Path) -> None:
    path = tmp_path / "end.json"
    path.write_text(json.dumps(graph("TrialEnd", {"how": "raise"})))
    code, said = cdui(shared_site, "run", str(path), "--target", "box")
    assert code == 1
    assert "it went wrong on purpose" in said
    assert "Traceback (most recent call last)\n  File" not in said.splitlines()[-1]
    assert said.strip().splitlines()[-1].endswith("failed")


def test_json_output_is_one_object_a_line(shared_site: Site, file: Path) -> None:
    code, said = cdui(shared_site, "run", str(file), "--target", "box", "--json")
    assert code == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[-1]["status"] == "succeeded"
    assert [line["cursor"] for line in lines[:-1]] == list(range(1, len(lines)))


def test_a_detached_run_prints_its_id(shared_site: Site, file: Path) -> None:
    code, said = cdui(shared_site, "run", str(file), "--detach")
    assert code == 0, said
    shared_site.wait_status(said.strip(), "succeeded")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"target": {"worker": "nobody"}}, "target.unknown"),
        ({"target": "nobody"}, "target.unknown"),
        ({"target": {"pool": "one-shot"}, "record_outputs": True}, "target.not_served"),
        ({"target": {"elsewhere": 1}}, "run.option_invalid"),
        ({"target": 5}, "run.option_invalid"),
        ({"target": "box", "device": "cuda:0"}, "target.device_unknown"),
        ({"device": "gpu"}, "run.option_invalid"),
        ({"sede": 1}, "run.option_unknown"),
        ({"seed": -1}, "run.option_invalid"),
        ({"seed": "1"}, "run.option_invalid"),
        ({"error_mode": "ignore"}, "run.option_invalid"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_submit(
    shared_site: Site, options: dict[str, object], code: str
) -> None:
    with pytest.raises(ApiProblem) as refused:
        shared_site.submit(graph("TrialCount"), **options)
    assert refused.value.code == code, refused.value
    assert refused.value.status == 400


def test_a_graph_with_issues_is_refused_with_all_of_them(shared_site: Site) -> None:
    document = graph("NoSuchNode")
    with pytest.raises(ApiProblem) as refused:
        shared_site.submit(document)
    assert refused.value.code == "graph.invalid"
    issues = refused.value.body["issues"]
    assert [(issue["code"], issue["node_id"]) for issue in issues] == [("unknown_node_type", "node")]


def test_status_and_workers_say_what_is_there(shared_site: Site) -> None:
    code, said = cdui(shared_site, "status")
    assert code == 0, said
    assert "box" in said
    assert shared_site.url in said
    code, said = cdui(shared_site, "workers", "list", "--json")
    assert code == 0, said
    assert [worker["name"] for worker in json.loads(said)["workers"]] == ["box"]


def test_without_a_server_a_command_says_how_to_start_one(shared_site: Site, tmp_path: Path) -> None:
    process = shared_site.spawn("alone", ["-m", "codefyui_core.cli", "status"], user_data=tmp_path / "other")
    assert process.wait(30) == 1
    assert "cdui start" in process.said()
