"""A SQLite file on a network file system is refused unless it is asked for."""

from pathlib import Path

import pytest

from codefyui_core.control.db import network_folder
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.network_folder import Mount, network_of
from codefyui_core.errors import StartProblem
from codefyui_core.testing.clock import ManualClock

LOCAL = Mount("/", "ext4")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "NFS"])
def test_a_file_below_a_network_mount_is_on_it(kind):
    assert network_of(Path("/home/ada/cdui/codefyui.db"), [LOCAL, Mount("/home", kind)]) == kind


@pytest.mark.parametrize(
    "mounts",
    [
        [LOCAL],
        [LOCAL, Mount("/home", "nfs4"), Mount("/home/ada", "xfs")],
        [LOCAL, Mount("/home/ad", "nfs4")],
        [LOCAL, Mount("/home", "nfs4"), Mount("/home", "ext4")],
        [],
    ],
    ids=["its own disk", "a disk below the mount", "a like name", "mounted over", "nothing known"],
)
def test_other_files_are_on_none(mounts):
    assert network_of(Path("/home/ada/cdui/codefyui.db"), mounts) is None


def test_a_network_drive_of_windows_counts():
    assert network_of(Path("/z/codefyui.db"), [Mount("/z", "NTFS", "rw,remote")]) == "a network drive"


async def test_a_database_on_a_network_file_system_is_refused_before_it_is_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(network_folder, "_mounts", lambda: [LOCAL, Mount(str(tmp_path.resolve()), "nfs4")])
    url = f"sqlite+aiosqlite:///{tmp_path}/data/codefyui.db"
    with pytest.raises(StartProblem, match=r"network file system \(nfs4\).*CODEFYUI_DB_PATH"):
        await Database.open(url, user_data=tmp_path, clock=ManualClock())
    assert not list(tmp_path.iterdir())
    database = await Database.open(url, user_data=tmp_path, clock=ManualClock(), on_network=True)
    await database.aclose()
