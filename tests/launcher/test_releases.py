"""Release tags: order, names, and going to another one."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdui_setup.releases import matching, newest, running_server

versions = st.tuples(*[st.integers(0, 30)] * 3)


@given(st.lists(st.tuples(versions, st.sampled_from(["", "v"])), min_size=1))
def test_the_newest_is_the_highest_number(tags: list[tuple[tuple[int, int, int], str]]) -> None:
    names = [prefix + ".".join(map(str, version)) for version, prefix in tags]
    found = newest([*names, "nightly", "9.9.9-rc1", "99.0"])
    assert found is not None
    assert tuple(map(int, found.removeprefix("v").split("."))) == max(version for version, _ in tags)


def test_no_release_is_none() -> None:
    assert newest(["nightly", "1.0.0-rc1"]) is None


@pytest.mark.parametrize(
    ("wanted", "tags", "tag"),
    [
        ("0.1.0", ["0.1.0"], "0.1.0"),
        ("0.1.0", ["v0.1.0"], "v0.1.0"),
        ("v0.1.0", ["0.1.0"], "0.1.0"),
        ("v0.1.0", ["0.1.0", "v0.1.0"], "v0.1.0"),
        ("0.1", ["0.1.0"], None),
    ],
)
def test_a_release_is_found_with_and_without_v(wanted: str, tags: list[str], tag: str | None) -> None:
    assert matching(wanted, tags) == tag


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": "x"}', '{"pid": 4194400}'])
def test_no_server_runs_by_a_file_that_names_none(tmp_path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    assert running_server(tmp_path) is None


def test_a_living_process_is_the_running_server(tmp_path) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"pid": os.getpid()}))
    assert running_server(tmp_path) == os.getpid()
