"""What runs get of the planes' settings."""

from pydantic import SecretStr

from codefyui_core.plugin import PluginSettings
from codefyui_core.settings import AgentSettings, ControlSettings, environment_of_runs


class BucketSettings(PluginSettings):
    """A plugin's, with a secret and something that isn't one."""

    bucket_key: SecretStr = SecretStr("")
    bucket_name: str = ""


def test_limits_that_a_file_or_flag_set_reach_the_run() -> None:
    handed = environment_of_runs(ControlSettings(max_parallel_nodes=7, run_event_payload_cap_bytes=99))
    assert handed["CODEFYUI_MAX_PARALLEL_NODES"] == "7"
    assert handed["CODEFYUI_RUN_EVENT_PAYLOAD_CAP_BYTES"] == "99"


def test_secrets_of_the_planes_are_blank_in_a_run() -> None:
    handed = environment_of_runs(AgentSettings(agent_token=SecretStr("abc")), (BucketSettings,))
    assert handed["CODEFYUI_AGENT_TOKEN"] == ""
    assert handed["CODEFYUI_DATABASE_URL"] == ""
    assert handed["CODEFYUI_BUCKET_KEY"] == ""
    assert "CODEFYUI_BUCKET_NAME" not in handed
    assert "abc" not in str(handed)
