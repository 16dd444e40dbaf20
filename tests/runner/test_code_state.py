"""Commits and builds, read from files as git and installers leave them."""

import subprocess
import sys

import pytest

from codefyui_core.runner.code_state import commit_of, file_digests, stamp, torch_build
from codefyui_core.runner.memory import available_bytes, cards, free_memory, total_bytes
from codefyui_core.wire.messages import DeviceInfo


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "package").mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def test_the_commit_of_a_checkout_is_what_git_says(checkout, tmp_path):
    assert commit_of(checkout / "package") == git(checkout, "rev-parse", "HEAD")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    head = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == head
    git(checkout, "pack-refs", "--all")
    assert commit_of(checkout) == head
    git(checkout, "checkout", "-q", "--detach")
    assert commit_of(checkout) == head
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    assert commit_of(tmp_path / "tree") == head
    assert commit_of(tmp_path) == ""


def test_the_build_of_torch_is_read_without_importing_it():
    code = "import sys; from codefyui_core.runner.code_state import torch_build; print(torch_build()); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    torch = pytest.importorskip("torch")
    found = torch_build()
    assert found["version"] == torch.__version__
    assert found["git_version"] == torch.version.git_version
    assert found["cuda"] == torch.version.cuda


def test_own_files_are_known_by_their_content_and_a_stamp_by_its_times(tmp_path):
    (tmp_path / "a.py").write_text("1")
    first, stamped = file_digests([tmp_path]), stamp([tmp_path])
    assert stamp([tmp_path]) == stamped
    (tmp_path / "a.py").write_text("22")
    assert file_digests([tmp_path]) != first
    assert stamp([tmp_path]) != stamped
    assert file_digests([tmp_path / "absent"]) == {}


def test_free_memory_is_told_for_what_is_known():
    cpu, card = DeviceInfo(device="cpu"), DeviceInfo(device="cuda:0", uuid="GPU-not-here")
    found = free_memory([cpu, card])
    assert found.keys() == {"cpu"}
    assert 0 < found["cpu"] <= total_bytes()
    assert 0 < available_bytes() <= total_bytes()
    assert isinstance(cards(), tuple)
