import random
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codefyui_core.agent.backoff import Backoff
from codefyui_core.agent.devices import computes_on, narrowed_environ, read_devices
from codefyui_core.agent.done import Done
from codefyui_core.agent.folder import Owner
from codefyui_core.agent.identity import default_name, make_identity
from codefyui_core.agent.lock import AlreadyRunning, FolderLock, PidFile
from codefyui_core.agent.places import Places, key_of
from codefyui_core.agent.plan import AgentPlan, absolute_folders
from codefyui_core.errors import UsageProblem
from codefyui_core.runs.options import worker_name_problem
from codefyui_core.wire.messages import AttemptKey, DeviceInfo


@pytest.mark.spec("credential/file-path", "credential/per-control-plane")
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://192.168.1.5:8000", "192.168.1.5-8000"),
        ("https://codefyui.example.com", "codefyui.example.com-443"),
        ("http://gpu-gw.lan", "gpu-gw.lan-80"),
        ("http://[fe80::1]:8000", "fe80__1-8000"),
        ("HTTP://Box:8000/", "box-8000"),
    ],
)
def test_the_key_of_an_address(url, key):
    assert key_of(url) == key


@pytest.mark.parametrize("url", ["http://", "http://a:b", "http://a:99999", ""])
def test_what_is_no_address_is_a_usage_problem(url):
    with pytest.raises(UsageProblem):
        key_of(url)


@pytest.mark.spec("agent/name-default-hostname")
@pytest.mark.parametrize(
    ("host", "name"),
    [("box7", "box7"), ("gpu.lab.example", "gpu"), ("my box!", "my-box"), ("any", "worker-any")],
)
def test_the_default_name_comes_from_the_host(host, name):
    assert default_name(host) == name


@given(st.text(max_size=80))
def test_any_host_gives_a_name_that_a_worker_may_have(host):
    assert worker_name_problem(default_name(host or "x")) is None


def test_the_folder_keeps_its_id_and_each_process_has_its_own(tmp_path):
    one, two = make_identity(tmp_path / "a" / "home-id"), make_identity(tmp_path / "a" / "home-id")
    assert one.home_id == two.home_id
    assert one.incarnation != two.incarnation
    assert len(one.machine_id) == 32


@pytest.fixture
def real_times(monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.backoff.FIRST_S", 1.0)
    monkeypatch.setattr("codefyui_core.agent.backoff.MOST_S", 30.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(failures=st.integers(0, 40), grace=st.floats(0, 1000))
def test_backoff_stays_below_thirty_seconds_and_a_quarter_of_the_grace(real_times, failures, grace):
    backoff = Backoff(random.Random(1), failures)
    assert 0 <= backoff.next_s(grace) <= max(1.0, min(30.0, grace / 4))


def test_after_a_planned_restart_the_pause_is_one_to_two_seconds():
    backoff = Backoff(random.Random(1), failures=9)
    assert all(1 <= backoff.soon_s() <= 2 for _ in range(100))
    assert backoff.failures == 9


def test_backoff_doubles_until_it_is_reset(real_times):
    class Most(random.Random):
        def uniform(self, a, b):
            return b

    backoff = Backoff(Most())
    assert [backoff.next_s(300) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next_s(300) == 1


def test_cards_are_named_by_uuid_else_by_what_the_batch_system_gave():
    known = (DeviceInfo(device="cuda:0", uuid="GPU-a"), DeviceInfo(device="cuda:1"))
    environ = {"CUDA_VISIBLE_DEVICES": "4,7"}
    assert narrowed_environ(("cuda:0", "cuda:1"), known, environ) == {"CUDA_VISIBLE_DEVICES": "GPU-a,7"}
    assert narrowed_environ(("cpu",), known, environ) == {"CUDA_VISIBLE_DEVICES": ""}
    assert narrowed_environ(("cuda:1",), known, {}) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert (computes_on(("cuda:1",)), computes_on(("mps:0",)), computes_on(())) == ("cuda:0", "mps", "cpu")
    assert read_devices("cuda:0, cuda:1,") == ("cuda:0", "cuda:1")


def test_a_lock_is_held_by_one(tmp_path):
    lock = FolderLock.take(tmp_path / "x.lock")
    with pytest.raises(AlreadyRunning):
        FolderLock.take(tmp_path / "x.lock")
    lock.release()
    FolderLock.take(tmp_path / "x.lock").release()


def test_a_pid_file_names_a_process_not_a_number(tmp_path):
    own = PidFile.own(name="box", url="")
    own.write(tmp_path / "x.pid")
    assert PidFile.read(tmp_path / "x.pid") == own
    assert own.lives
    other = PidFile(pid=own.pid, started=own.started - 100, boot_id=own.boot_id, name="", url="")
    assert not other.lives
    (tmp_path / "bad.pid").write_text("17")
    assert PidFile.read(tmp_path / "bad.pid") is None


def test_a_spool_is_free_when_its_owner_is_certainly_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    from codefyui_core.this_machine import started_at

    this = Owner.this_process("i")
    owner = this.model_copy(update={"pid": child.pid, "started": started_at(child.pid)})
    try:
        assert not owner.gone
    finally:
        child.communicate(b"\n")
    assert owner.gone
    assert not owner.model_copy(update={"host": "elsewhere"}).gone
    assert owner.model_copy(update={"boot_id": "another"}).gone


def test_attempts_that_are_done_are_known_by_their_lease(tmp_path):
    done = Done(tmp_path / "spool" / "done")
    for number in range(1100):
        done._leases[f"r{number}.1"] = "l"
    done.add(AttemptKey(run_id="x", attempt=1), "lease")
    again = Done(tmp_path / "spool" / "done")
    assert again.has(AttemptKey(run_id="x", attempt=1), "lease")
    assert not again.has(AttemptKey(run_id="x", attempt=1), "other")
    assert not again.has(AttemptKey(run_id="r0", attempt=1), "l")


@pytest.mark.spec("paths/relative-agent-setting-kept-against-start-directory")
def test_relative_folders_mean_where_the_agent_was_started(tmp_path):
    environ = {"CODEFYUI_DATA_DIR": "data", "CODEFYUI_EXTRA_DATA_DIRS": "a,/b", "CODEFYUI_PORT": "1"}
    changed = absolute_folders(environ, tmp_path)
    assert changed == {
        "CODEFYUI_DATA_DIR": str(tmp_path / "data"),
        "CODEFYUI_EXTRA_DATA_DIRS": f"{tmp_path / 'a'},/b",
    }


def test_a_token_is_not_in_the_text_of_a_plan():
    plan = AgentPlan(url="http://a", token="abcdef.0123456789abcdef")
    assert "0123456789abcdef" not in repr(plan)
    with pytest.raises(UsageProblem):
        AgentPlan(name="a.b").checked()


def test_the_files_of_two_addresses_lie_side_by_side(tmp_path):
    one, two = (Places(user_data=tmp_path, key=key_of(f"http://a:{port}")) for port in (1, 2))
    assert one.credential != two.credential
    assert one.spools != two.spools
