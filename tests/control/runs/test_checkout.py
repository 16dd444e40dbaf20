"""The commit that a run was submitted from."""

import subprocess

import pytest

from codefyui_core.control.runs.checkout import FRESH_MS, Checkout, CheckoutState


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()

    def git(*words):
        setting = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *setting, "-C", folder, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    (folder / "graph.json").write_text("{}")
    git("add", "graph.json")
    git("commit", "--quiet", "-m", "First")
    return folder, git("rev-parse", "HEAD")


async def test_the_commit_is_told_and_whether_tracked_files_differ(repository):
    folder, commit = repository
    now = 0
    checkout = Checkout(folder, lambda: now)
    assert await checkout.now() == CheckoutState(commit=commit, dirty=False)
    (folder / "beside.txt").write_text("not tracked")
    now += FRESH_MS
    assert await checkout.now() == CheckoutState(commit=commit, dirty=False)
    (folder / "graph.json").write_text("[]")
    assert (await checkout.now()).dirty is False
    now += FRESH_MS
    assert await checkout.now() == CheckoutState(commit=commit, dirty=True)


async def test_where_git_cannot_answer_the_commit_is_still_known(repository, monkeypatch):
    folder, commit = repository
    monkeypatch.setenv("PATH", "/nowhere")
    assert await Checkout(folder, lambda: 0).now() == CheckoutState(commit=commit, dirty=None)


async def test_outside_of_a_checkout_nothing_is_known(tmp_path):
    assert await Checkout(tmp_path, lambda: 0).now() == CheckoutState()
    assert await Checkout(None, lambda: 0).now() == CheckoutState()


async def test_a_run_keeps_the_commit_that_it_was_submitted_from(closed_room, repository):
    folder, commit = repository
    room = await closed_room.open()
    room.service._intake._checkout = Checkout(folder, lambda: 0)
    row = await room.row(await room.submit(target="any"))
    assert (row["git_commit"], row["git_dirty"]) == (commit, False)
