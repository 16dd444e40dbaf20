"""Which layer wins."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.errors import UsageProblem
from codefyui_core.settings import Layers, Source, read_env_file

NAME = "CODEFYUI_PORT"
maybe = st.none() | st.sampled_from(["", "1", "2", "3"])


@given(flag=maybe, env=maybe, project=maybe, user=maybe)
def test_the_strongest_layer_with_a_text_wins(
    flag: str | None, env: str | None, project: str | None, user: str | None
) -> None:
    def one(value: str | None) -> dict[str, str]:
        return {} if value is None else {NAME: value}

    layers = Layers(flags=one(flag), environ=one(env), files=(one(project), one(user)))
    ordered = [(flag, Source.FLAG), (env, Source.ENV), (project, Source.FILE), (user, Source.FILE)]
    expected = next(((value, source) for value, source in ordered if value), None)
    assert layers.find(NAME) == expected
    assert layers.merged().get(NAME) == (expected[0] if expected else None)
    assert layers.source(NAME) is (expected[1] if expected else Source.DEFAULT)


def test_the_projects_file_stands_before_the_users(tmp_path: Path) -> None:
    project, user = tmp_path / "p", tmp_path / "u"
    for folder, port in ((project, "1"), (user, "2")):
        folder.mkdir()
        (folder / ".env").write_text(f"CODEFYUI_PORT={port}\n")
    assert Layers.gather(environ={}, user_data=user).find(NAME) == ("2", Source.FILE)
    assert Layers.gather(environ={}, user_data=user, project=project).find(NAME) == ("1", Source.FILE)


def test_a_flag_that_was_not_given_is_no_layer(tmp_path: Path) -> None:
    layers = Layers.gather(environ={NAME: "5"}, user_data=tmp_path, flags={NAME: None})
    assert layers.find(NAME) == ("5", Source.ENV)


def test_a_file_gives_its_own_variables_as_written(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text('# notes\nexport CODEFYUI_HOST="0.0.0.0"\nOTHER=1\nCODEFYUI_A=\nCODEFYUI_B=${HOME}x\n')
    assert read_env_file(path) == {"CODEFYUI_HOST": "0.0.0.0", "CODEFYUI_B": "${HOME}x"}


def test_no_file_is_an_empty_layer(tmp_path: Path) -> None:
    assert read_env_file(tmp_path / ".env") == {}


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"CODEFYUI_HOST=\xff\xfe")
    with pytest.raises(UsageProblem, match=r"\.env can't be read"):
        read_env_file(tmp_path / ".env")
