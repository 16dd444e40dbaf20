"""Defaults, kinds of values, and messages of the core's settings."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from codefyui_core.errors import UsageProblem
from codefyui_core.plugin.settings import PluginSettings
from codefyui_core.settings import AgentSettings, ControlSettings, Layers, Source, describe, read_settings


def control(**values: str) -> ControlSettings:
    return read_settings(ControlSettings, layers(**values))


def layers(**values: str) -> Layers:
    return Layers(environ={f"CODEFYUI_{name.upper()}": value for name, value in values.items()})


@pytest.mark.spec(
    "setting/worker-resume-grace", "setting/max-upload-size", "setting/transfer-max-input-bytes"
)
def test_the_defaults_of_the_control_plane() -> None:
    settings = control()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.worker_resume_grace_s == 300
    assert settings.worker_output_fetch_timeout_s == 60
    assert settings.worker_one_shot_queue_timeout_s == 86400
    assert settings.extra_allowed_hosts == ()
    assert settings.max_upload_size == 500 * 1024**2
    assert settings.transfer_max_input_bytes == 2 * 1024**3
    assert settings.run_queue_durable
    assert settings.frame_bytes == settings.max_run_body_bytes == 64 * 1024**2


def test_the_defaults_of_an_agent() -> None:
    settings = read_settings(AgentSettings, Layers())
    assert settings.run_output_store_max_mb == 2048
    assert settings.worker_outputs_write_timeout_s == 300
    assert settings.agent_token is None


def test_the_process_environment_is_read_through_layers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEFYUI_PORT", "1234")
    assert control().port == 8000


def test_empty_text_is_not_set() -> None:
    assert control(port="", database_url="").port == 8000


@pytest.mark.parametrize("text", ["gpu-gw.lan:8000,b", " gpu-gw.lan:8000 , b ,"])
def test_lists_are_separated_by_commas(text: str) -> None:
    assert control(extra_allowed_hosts=text).extra_allowed_hosts == ("gpu-gw.lan:8000", "b")


def test_caps_name_a_device_or_a_worker_and_its_device() -> None:
    caps = control(run_queue_max_concurrent="gpu-box/cuda:0=2, cuda:1=1").run_queue_max_concurrent
    assert caps == {"gpu-box/cuda:0": 2, "cuda:1": 1}


@pytest.mark.parametrize("entry", ["cuda:0", "cuda:0=many", "=3", "cuda:0=", "cuda:0=1.5"])
def test_caps_that_make_no_sense_are_left_out_with_a_warning(
    entry: str, caplog: pytest.LogCaptureFixture
) -> None:
    caps = control(run_queue_max_concurrent=f"cuda:1=2,{entry},gpu-box/cpu=4").run_queue_max_concurrent
    assert caps == {"cuda:1": 2, "gpu-box/cpu": 4}
    assert f"{entry!r} is ignored" in caplog.text


@pytest.mark.parametrize("count", [0, -1])
def test_a_cap_below_one_is_one(count: int) -> None:
    assert control(run_queue_max_concurrent=f"cuda:0={count}").run_queue_max_concurrent == {"cuda:0": 1}


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "sqlite+aiosqlite:////u/codefyui.db"),
        ({"db_path": "/x/y.db"}, "sqlite+aiosqlite:////x/y.db"),
        ({"db_path": "/x/y.db", "database_url": "sqlite:////z.db"}, "sqlite+aiosqlite:////z.db"),
        ({"database_url": "postgresql://u:p@h/d"}, "postgresql+asyncpg://u:p@h/d"),
        ({"database_url": "postgresql+asyncpg://h/d"}, "postgresql+asyncpg://h/d"),
    ],
)
def test_the_database_url(values: dict[str, str], url: str) -> None:
    assert control(**values).database(Path("/u")) == url


def test_a_wrong_value_is_named_with_its_place() -> None:
    given = Layers(files=({"CODEFYUI_PORT": "many"},), flags={"CODEFYUI_LOG_LEVEL": "loud"})
    with pytest.raises(UsageProblem) as caught:
        read_settings(ControlSettings, given)
    assert "CODEFYUI_PORT is 'many' (from: the .env file): " in caught.value.message
    assert "CODEFYUI_LOG_LEVEL is 'loud' (from: the command line): " in caught.value.message


class Sample(PluginSettings):
    sample_secret: SecretStr | None = None
    sample_count: int = 1


class Pin(PluginSettings):
    pin: SecretStr


def test_a_plugins_class_is_filled_from_the_same_layers() -> None:
    settings = read_settings(Sample, layers(sample_secret="s3cret", sample_count=""))
    assert settings.sample_secret == SecretStr("s3cret")
    assert settings.sample_count == 1


def test_rows_show_sources_and_hide_secrets() -> None:
    rows = {
        row.name: row for row in describe(Sample, layers(sample_secret="s3cret"), owner="codefyui-sample")
    }
    secret, count = rows["CODEFYUI_SAMPLE_SECRET"], rows["CODEFYUI_SAMPLE_COUNT"]
    assert (secret.value, secret.source, secret.owner) == ("**********", Source.ENV, "codefyui-sample")
    assert (count.value, count.default, count.source, count.plane) == (1, 1, Source.DEFAULT, "control")
    assert "s3cret" not in repr(rows)


def test_a_missing_secret_is_named() -> None:
    with pytest.raises(UsageProblem, match="CODEFYUI_PIN: Field required"):
        read_settings(Pin, Layers())


@pytest.mark.parametrize("cls", [ControlSettings, AgentSettings])
def test_every_setting_says_what_it_is_for(cls: type[ControlSettings]) -> None:
    rows = describe(cls, layers(database_url="postgresql://u:p@h/d", agent_token="t"))
    assert [row.name for row in rows if not row.description] == []
    assert not [row for row in rows if row.value in ("t", "postgresql://u:p@h/d")]


def test_rows_are_json() -> None:
    row = next(row for row in describe(ControlSettings, layers(port="8010")) if row.name == "CODEFYUI_PORT")
    assert row.to_json() == {
        "name": "CODEFYUI_PORT",
        "value": 8010,
        "default": 8000,
        "source": "env",
        "plane": "control",
        "owner": "codefyui-core",
        "description": "The port to listen on.",
    }


def test_a_list_shows_as_it_is_written() -> None:
    rows = {row.name: row for row in describe(ControlSettings, layers(extra_allowed_hosts="a, b"))}
    assert rows["CODEFYUI_EXTRA_ALLOWED_HOSTS"].value == "a,b"
    assert rows["CODEFYUI_CORS_ORIGINS"].default == (
        "http://localhost:5173,http://localhost:5174,http://localhost:3000"
    )
