"""Names from outside stay below their folder, and files are whole or absent."""

import errno
import hashlib
import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.errors import BadName, StartProblem
from codefyui_core.files import PROJECT_FILE, Family, Folders, SafeFolder, sha256_of, write_private
from codefyui_core.folder_handles import HandleDirectory, PathDirectory
from codefyui_core.portable_names import check_name

HOSTILE = [
    "",
    ".",
    "./.",
    "/",
    "..",
    "../secret",
    "a/../../secret",
    "a/..",
    "..\\secret",
    "a\\b",
    "/etc/passwd",
    "//host/share/x",
    "\\\\host\\share\\x",
    "\\\\?\\C:\\x",
    "C:",
    "C:x",
    "c:/x",
    "a/C:x",
    "a\0b",
    "\0",
    "a\nb",
    "a\x1bb",
    "a\x7fb",
    "a\x85b",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "/".join(["abcdefgh"] * 120),
    "con",
    "a/NUL",
    "aux.txt",
    "COM1.tar.gz",
    "lpt9",
    "com¹",
    "nul .txt",
    "CONIN$",
    "a.",
    "...",
    "a ",
    ".. /x",
]

ORDINARY = [
    "a",
    "%2e%2e/x",
    "%2e",
    "..a",
    "a..b",
    ".hidden",
    "a/b/c.pt",
    "#x?y;z",
    "é.pt",
    "é.pt",
    "console",
    "nul-1",
]


@pytest.fixture(params=[HandleDirectory, PathDirectory])
def base(request, tmp_path, monkeypatch):
    """The folder to guard, held by each kind of handle in turn; ``outside`` beside it must stay as it is."""
    if request.param is HandleDirectory and sys.platform == "win32":
        monkeypatch.setattr("codefyui_core.files.open_directory", PathDirectory.root)
    else:
        monkeypatch.setattr("codefyui_core.files.open_directory", request.param.root)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (tmp_path / "base").mkdir()
    return tmp_path / "base"


@pytest.fixture
def folder(base):
    with SafeFolder(base) as opened:
        yield opened
    assert {path.name: path.read_text() for path in (base.parent / "outside").iterdir()} == {
        "secret": "secret"
    }


def write_then_fail(opening, content):
    with opening as file:
        file.write(content)
        raise RuntimeError("stop")


def every_way_in(folder, name):
    """Each method with ``name``, as calls."""

    def write():
        with folder.write(name) as file:
            file.write(b"x")

    def append():
        with folder.append(name, 0) as file:
            file.write(b"x")

    return {
        "read": lambda: folder.read(name).close(),
        "write": write,
        "append": append,
        "rename from": lambda: folder.rename(name, "elsewhere"),
        "rename to": lambda: folder.rename("there", name),
        "rename over": lambda: folder.rename("there", name, replace=True),
        "remove": lambda: folder.remove(name),
    }


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused_by_every_method_and_nothing_is_touched(folder, base, name):
    (base / "there").write_text("there")
    with pytest.raises(BadName):
        folder.check(name)
    for way, call in every_way_in(folder, name).items():
        with pytest.raises(BadName):
            call()
        assert sorted(path.name for path in base.rglob("*")) == ["there"], way


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_name_is_taken_as_it_is(folder, base, name):
    with folder.write(name) as file:
        file.write(b"content")
    assert (base / name).read_bytes() == b"content"
    with folder.read(name) as file:
        assert file.read() == b"content"
    assert [found for found, _ in folder.walk()] == [name]


def test_names_are_normalised():
    assert str(check_name("./a//b/./c/")) == "a/b/c"


def test_windows_refuses_the_characters_that_it_cannot_hold():
    for character in '<>:"|?*':
        name = f"ab{character}c"
        assert check_name(name, windows=False)
        with pytest.raises(BadName):
            check_name(name, windows=True)


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["..", ".", "a", "", "C:", "\\", "\0", "con"])).map("/".join)
)
def test_a_checked_name_always_stays_below(name):
    try:
        checked = check_name(name)
    except BadName:
        return
    assert not checked.is_absolute()
    assert ".." not in checked.parts
    assert Path(os.path.normpath(Path("/base") / checked)).is_relative_to("/base")


@pytest.mark.parametrize("target", ["secret", "nothing"])
def test_a_symbolic_link_in_place_of_the_file_is_refused(folder, base, target):
    (base / "there").write_text("there")
    (base / "link").symlink_to(base.parent / "outside" / target)
    for way, call in every_way_in(folder, "link").items():
        if way == "rename to":
            with pytest.raises(FileExistsError):
                call()
        else:
            with pytest.raises(BadName):
                call()
    assert (base / "link").is_symlink()
    assert list(folder.walk()) == [("there", (base / "there").stat())]


def test_a_symbolic_link_in_place_of_a_folder_is_refused(folder, base):
    (base / "there").write_text("there")
    (base / "link").symlink_to(base.parent / "outside", target_is_directory=True)
    for call in every_way_in(folder, "link/secret").values():
        with pytest.raises(BadName):
            call()
    assert [name for name, _ in folder.walk()] == ["there"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs handles of folders")
def test_a_link_swapped_in_between_check_and_use_leads_nowhere(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (outside / "f").write_bytes(b"secret")
    (root / "real").mkdir(parents=True)
    (root / "real" / "f").write_bytes(b"mine")
    (root / "link").symlink_to(outside)
    done = threading.Event()

    def swap():
        while not done.is_set():
            for name in ("real", "link"):
                (root / name).rename(root / "d")
                (root / "d").rename(root / name)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        with SafeFolder(root) as folder:
            for _ in range(300):
                try:
                    with folder.read("d/f") as file:
                        assert file.read() == b"mine"
                except (BadName, FileNotFoundError):
                    pass
    finally:
        done.set()
        swapper.join()
    assert (outside / "f").read_bytes() == b"secret"


def test_a_root_that_is_moved_away_is_still_the_same_folder(tmp_path):
    root = tmp_path / "root"
    with SafeFolder(root, create=True) as folder:
        root.rename(tmp_path / "moved")
        root.symlink_to("/")
        with folder.write("a") as file:
            file.write(b"x")
    assert (tmp_path / "moved" / "a").read_bytes() == b"x"


def test_leaving_a_write_badly_leaves_the_old_file_and_nothing_else(folder, base):
    (base / "a").write_text("old")
    with pytest.raises(RuntimeError, match="stop"):
        write_then_fail(folder.write("a"), b"new")
    assert [(path.name, path.read_text()) for path in base.iterdir()] == [("a", "old")]


def test_an_unfinished_write_is_not_listed(folder):
    with folder.write("sub/a") as file:
        file.write(b"x")
        assert list(folder.walk()) == []
    assert [name for name, _ in folder.walk()] == ["sub/a"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_write_sets_the_mode(folder, base):
    with folder.write("a", mode=0o600):
        pass
    assert stat.S_IMODE((base / "a").stat().st_mode) == 0o600


def test_append_cuts_at_the_offset_and_keeps_what_came_before_a_failure(folder, base):
    (base / "a").write_bytes(b"0123456789")
    with pytest.raises(RuntimeError, match="stop"):
        write_then_fail(folder.append("a", 4), b"abc")
    assert (base / "a").read_bytes() == b"0123abc"
    with folder.append("a", 7) as file:
        file.write(b"!")
    assert (base / "a").read_bytes() == b"0123abc!"


@pytest.mark.parametrize("offset", [-1, 4])
def test_append_never_leaves_a_hole(folder, base, offset):
    (base / "a").write_bytes(b"012")
    with pytest.raises(ValueError, match="3 bytes"), folder.append("a", offset):
        pass
    assert (base / "a").read_bytes() == b"012"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_rename_never_replaces_on_a_file_system_without_links_either(folder, base, monkeypatch, number):
    """FAT says EPERM, network shares and FUSE EOPNOTSUPP or ENOSYS."""

    def link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(HandleDirectory, "link", link)
    monkeypatch.setattr(PathDirectory, "link", link)
    (base / "a").write_bytes(b"1")
    (base / "b").write_bytes(b"2")
    with pytest.raises(FileExistsError):
        folder.rename("a", "b")
    folder.rename("a", "c")
    assert {path.name: path.read_bytes() for path in base.iterdir()} == {"b": b"2", "c": b"1"}


def test_rename_replaces_only_when_told(folder, base):
    for name in ("a", "b"):
        (base / name).write_text(name)
    with pytest.raises(FileExistsError):
        folder.rename("a", "b")
    folder.rename("a", "b", replace=True)
    assert (base / "b").read_text() == "a"
    folder.rename("b", "deep/er/c")
    assert [name for name, _ in folder.walk()] == ["deep/er/c"]


def test_rename_moves_a_whole_folder_but_never_over_another(folder, base):
    (base / "a").mkdir()
    (base / "a" / "f").write_text("f")
    (base / "b").mkdir()
    with pytest.raises(FileExistsError):
        folder.rename("a", "b")
    folder.rename("a", "c")
    assert [name for name, _ in folder.walk()] == ["c/f"]


@pytest.mark.parametrize("name", ["gone", "gone/deeper", "file/deeper"])
def test_what_is_not_there_is_not_found(folder, base, name):
    (base / "file").write_text("x")
    with pytest.raises(FileNotFoundError):
        folder.read(name)
    with pytest.raises(FileNotFoundError):
        folder.rename(name, "to")
    folder.remove(name)


def test_a_file_is_not_taken_for_a_folder_when_writing(folder, base):
    (base / "file").write_text("x")
    (base / "dir").mkdir()
    with pytest.raises(BadName), folder.write("file/below"):
        pass
    with pytest.raises(BadName), folder.write("dir"):
        pass
    with pytest.raises(BadName):
        folder.read("dir")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_pipes_and_sockets_are_not_files_and_nothing_waits_for_them(folder, base):
    os.mkfifo(base / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(base / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises((BadName, OSError)):
                folder.read(name)
            with pytest.raises(BadName), folder.write(name):
                pass
            with pytest.raises(BadName), folder.append(name, 0):
                pass
    assert list(folder.walk()) == []


def test_remove_takes_a_folder_deeper_than_any_name_and_spares_what_links_point_to(folder, base):
    inside = base / "tree"
    inside.mkdir()
    (inside / "f").write_text("x")
    (inside / "out").symlink_to(base.parent / "outside", target_is_directory=True)
    place = Path.cwd()
    os.chdir(inside)
    try:
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(place)
    assert [name for name, _ in folder.walk()] == ["tree/f"]
    folder.remove("tree")
    assert list(base.iterdir()) == []


def test_walk_is_ordered_and_gives_sizes(folder, base):
    for name in ("b/c", "b/a", "a", "z"):
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_text(name)
    assert [(name, found.st_size) for name, found in folder.walk()] == [
        ("a", 1),
        ("z", 1),
        ("b/a", 3),
        ("b/c", 3),
    ]


def test_a_safe_folder_is_made_on_request_only(tmp_path):
    with pytest.raises(FileNotFoundError):
        SafeFolder(tmp_path / "new" / "er")
    SafeFolder(tmp_path / "new" / "er", create=True, mode=0o700).close()
    assert (tmp_path / "new" / "er").is_dir()


def test_no_handles_are_left_open(folder, base):
    def count():
        return len(list(Path("/dev/fd").iterdir())) if Path("/dev/fd").is_dir() else 0

    before = count()
    for _ in range(20):
        with folder.write("a/b/c") as file:
            file.write(b"x")
        folder.read("a/b/c").close()
        list(folder.walk())
        next(folder.walk())
        for name in ("a/x", "..", "a/b/c/d"):
            with pytest.raises((BadName, FileNotFoundError)):
                folder.read(name)
        folder.remove("a")
    assert count() == before


def test_write_private_is_whole_and_owners_only(tmp_path):
    path = tmp_path / "session.token"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["session.token"]
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_write_private_does_not_write_through_a_link(tmp_path):
    (tmp_path / "other").write_text("other")
    (tmp_path / "key").symlink_to(tmp_path / "other")
    write_private(tmp_path / "key", b"key")
    assert (tmp_path / "other").read_text() == "other"
    assert not (tmp_path / "key").is_symlink()


def test_write_private_leaves_nothing_when_it_fails(tmp_path):
    (tmp_path / "key").mkdir()
    with pytest.raises(OSError):  # noqa: PT011  which one differs by system
        write_private(tmp_path / "key", b"key")
    assert [found.name for found in tmp_path.iterdir()] == ["key"]


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"content" * 100_000)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"content" * 100_000).hexdigest()


def test_folders_lie_below_the_data_folder_by_their_names(tmp_path):
    folders = Folders.below(tmp_path)
    assert {family: folders.of(family) for family in Family} == {
        family: tmp_path / family for family in Family
    }


@pytest.mark.spec("mount/worker-folders-from-project-toml")
def test_a_project_has_a_layout_of_its_own(tmp_path):
    (tmp_path / PROJECT_FILE).write_text('[folders]\nimages = "pictures/raw"\n')
    folders = Folders.below(tmp_path)
    assert folders.of(Family.MODELS) == tmp_path / "assets" / "models"
    assert folders.of(Family.GRAPHS) == tmp_path / "graphs"
    assert folders.of(Family.IMAGES) == tmp_path / "pictures" / "raw"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[folders", StartProblem),
        ("folders = 1", StartProblem),
        ("[folders]\nmodels = 1", StartProblem),
        ('[folders]\nweights = "w"', StartProblem),
        ('[folders]\nmodels = "../w"', BadName),
        ('[folders]\nmodels = "/w"', BadName),
    ],
)
def test_a_broken_project_file_is_explained(tmp_path, text, error):
    (tmp_path / PROJECT_FILE).write_text(text)
    with pytest.raises(error):
        Folders.below(tmp_path)


def test_locate_follows_moved_families_and_relative_is_its_reverse(tmp_path):
    folders = Folders(root=tmp_path, moved=((Family.CACHE, tmp_path / "models" / "shared"),))
    assert folders.locate("models/a.pt") == tmp_path / "models" / "a.pt"
    assert folders.locate("cache/x") == tmp_path / "models" / "shared" / "x"
    for name in ("models/a.pt", "cache/x", "output", "files/a/b"):
        assert folders.relative(folders.locate(name)) == name
    assert folders.relative(tmp_path / "cache" / "x") is None
    assert folders.relative(tmp_path / "models" / ".." / "other") is None
    assert folders.relative(tmp_path / "codefyui.db") is None


@pytest.mark.parametrize("name", ["..", "models/../../x", "/models/x", "weights/x", "models\\x", "models/\0"])
def test_locate_refuses_what_is_in_no_family(tmp_path, name):
    with pytest.raises(BadName):
        Folders.below(tmp_path).locate(name)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_relative_knows_a_path_whatever_links_lead_to_the_data_folder(tmp_path):
    (tmp_path / "real" / "models").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Folders.below(tmp_path / "link").relative(tmp_path / "real" / "models" / "a") == "models/a"
    assert Folders.below(tmp_path / "real").relative(tmp_path / "link" / "models" / "a") == "models/a"
