"""``cdui agent start --mount``, as far as it goes before an agent runs."""

import json
from pathlib import Path

import pytest

from codefyui_core.agent.lock import FolderLock
from codefyui_core.agent.places import Places
from codefyui_core.cli.__main__ import main

START = ("agent", "start", "--control", "http://127.0.0.1:9")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "CODEFYUI_USER_DATA_DIR": str(tmp_path / "user"),
        "CODEFYUI_PLUGINS_ONLY": "builtin,storage_mount",
    }


def words(*options: str) -> list[str]:
    """Without a token nothing is dialed: the start ends when it asks for one."""
    return [*START, "--foreground", *options]


def saved(environ: dict[str, str]) -> object:
    path = Path(environ["CODEFYUI_USER_DATA_DIR"]) / "agent.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_a_flag_whose_folder_is_not_there_ends_the_start(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for options, status in (((), 1), (("--one-shot",), 4)):
        assert main(words("--mount", "data=/no/such/folder", *options), environ=environ) == status
        assert "/no/such/folder" in capsys.readouterr().err
    assert saved(environ) is None


def test_a_flag_of_another_form_is_wrong_use(environ: dict[str, str]) -> None:
    assert main(words("--mount", "/nas/data"), environ=environ) == 2


@pytest.mark.spec("mount/flag-refused-while-agent-runs")
@pytest.mark.parametrize("instance", ["", "17-3"])
def test_a_change_is_refused_while_any_agent_of_the_folder_runs(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], instance: str
) -> None:
    user_data = Path(environ["CODEFYUI_USER_DATA_DIR"])
    places = Places(user_data=user_data, key="gpu-8000", instance=instance)
    places.lock.parent.mkdir(parents=True)
    before = {"mount": {"mounts": {"data": "/old"}}}
    (user_data / "agent.json").write_text(json.dumps(before))
    lock = FolderLock.take(places.lock)
    for change in (f"data={tmp_path}", "data="):
        assert main(words("--mount", change), environ=environ) == 1
        assert "Stop it first: cdui agent stop" in capsys.readouterr().err
        assert saved(environ) == before
    lock.release()
