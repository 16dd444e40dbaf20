"""Names of files made to lead elsewhere: whatever a request, a row or a graph says, nothing outside is read, made or
removed.
"""

import asyncio
import unicodedata

import pytest

from codefyui_core.control.files.uploads import Uploads
from codefyui_core.files import Family, SafeFolder

SECRET = b"not for you"
CLIMBS = [
    "../secret.csv",
    "..%2Fsecret.csv",
    "%2e%2e/secret.csv",
    "%2e%2e%2fsecret.csv",
    "%252e%252e%252fsecret.csv",
    "..\\secret.csv",
    "..%5Csecret.csv",
    "a/../../secret.csv",
    "./../secret.csv",
    ".%2e/secret.csv",
    "%c0%ae%c0%ae/secret.csv",
    "/{outside}/secret.csv",
    "%2F{outside}%2Fsecret.csv",
    "C:%5Csecret.csv",
    "C:secret.csv",
    "%5C%5Chost%5Cshare%5Csecret.csv",
    "//host/share/secret.csv",
    "%5C%5C%3F%5CC:%5Csecret.csv",
    "secret.csv%00.png",
    "a.csv%00",
    "link.csv",
    "linked/secret.csv",
    "secret.csv#a.csv",
    "secret.csv?x=a.csv",
    "secret.csv;a.csv",
    "a.csv::$DATA",
    "con",
    "nul.csv",
    "x" * 4000,
    "d/" * 600 + "a.csv",
    "%ff%fe.csv",
    ".",
    "..",
    "%20",
]
ROUTES = ["/api/files/download/{name}", "/api/images/download/{name}", "/api/models/download/{name}"]


@pytest.fixture
def outside(app):
    """A secret beside each family's folder, and links to it in them."""
    data = app.plane.install.data
    (data / "secret.csv").write_bytes(SECRET)
    for family in ("files", "images", "models"):
        folder = data / family
        (folder / "link.csv").symlink_to(data / "secret.csv")
        (folder / "linked").symlink_to(data)
        (folder / "a.csv").write_bytes(b"mine")
    return data


async def raw(app, method, target):
    """Status and whole answer of a target that no client would have tidied. None: the line was cut."""
    reader, writer = await asyncio.open_connection(app.client.host, app.client.port)
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nX-CodefyUI-Token: {app.plane.token}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n")
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer


def state_of(data):
    return {
        str(path.relative_to(data)): None if path.is_dir() else path.read_bytes()
        for path in data.rglob("*")
        if "custom_nodes" not in path.parts
    }


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_name_leads_out_of_a_family(app, outside, method):
    before = state_of(outside)
    for route in ROUTES:
        base = route if method == "GET" else route.replace("/download", "")
        for name in CLIMBS:
            target = base.format(name=name.format(outside=str(outside).strip("/")))
            status, answer = await raw(app, method, target)
            assert status in {400, 403, 404, 405, 414}, (method, target, status)
            assert SECRET not in answer, target
    assert state_of(outside) == before


async def test_no_id_leads_to_another_runs_artifact_or_to_a_file(app, outside):
    run_id = await app.finished()
    before = state_of(outside)
    for name in CLIMBS:
        for method, target in (
            ("GET", f"/api/runs/{run_id}/artifacts/{name}/download"),
            ("GET", f"/api/runs/{name}/artifacts/{name}/download"),
            ("GET", f"/api/runs/{run_id}/inputs/{name}"),
            ("DELETE", f"/api/runs/{run_id}/artifacts/{name}"),
        ):
            status, answer = await raw(app, method, target.format(outside=str(outside).strip("/")))
            assert status in {400, 401, 403, 404, 405, 414}, (method, target, status)
            assert SECRET not in answer, target
    assert state_of(outside) == before


@pytest.mark.parametrize(
    "place",
    [
        "../secret.csv",
        "models/../../secret.csv",
        "files/link.csv",
        "files/linked/secret.csv",
        "secret.csv",
        "/etc/passwd",
        "",
    ],
)
async def test_a_row_that_names_a_file_outside_gives_none(app, outside, place):
    """Rows are written by what runs say of themselves."""
    run_id, process = await app.running()
    process.say(
        "artifact", artifact_id="a", kind="x", name="secret.csv", relative_path=place, backend="local"
    )
    process.finish()
    await app.row_when(run_id, active=False)
    (row,) = (await app.get(f"/api/runs/{run_id}/artifacts")).json
    answer = await app.get(f"/api/runs/{run_id}/artifacts/a/download")
    assert 400 <= answer.status < 500
    assert SECRET not in answer.body
    before = state_of(outside)
    assert (await app.ask("DELETE", f"/api/runs/{run_id}/artifacts/{row['id']}")).status == 200
    assert (await app.ask("DELETE", f"/api/runs/{run_id}")).status == 200
    assert state_of(outside) == before


async def test_a_link_that_is_put_there_between_look_and_send_is_not_followed(app, outside, monkeypatch):
    """The answer is of the file that was looked at."""
    opened = SafeFolder.read

    def swapped(self, name):
        file = opened(self, name)
        place = outside / "files" / name
        place.unlink()
        place.symlink_to(outside / "secret.csv")
        return file

    monkeypatch.setattr(SafeFolder, "read", swapped)
    answer = await app.get("/api/files/download/a.csv")
    assert (answer.status, answer.body) == (200, b"mine")


async def test_a_folder_that_becomes_a_link_while_a_file_comes_in_gets_nothing(tmp_path):
    store = Uploads(family=Family.FILES, folder=tmp_path / "files", limit_bytes=100)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    async def chunks():
        yield b"half"
        (tmp_path / "files").rename(tmp_path / "moved")
        (tmp_path / "files").symlink_to(elsewhere)
        yield b" and half"

    await store.store("a.csv", chunks(), overwrite=False)
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "moved" / "a.csv").read_bytes() == b"half and half"


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../../x.csv",
        "/x.csv",
        "C:\\x.csv",
        "\\\\host\\x.csv",
        "x.csv\0",
        "a/b/../../x.csv",
        "x" * 300,
        "~/x.csv",
    ],
)
async def test_an_upload_is_stored_in_its_folder_or_not_at_all(app, outside, name):
    before = state_of(outside)
    head = f'--xx\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    answer = await app.ask(
        "POST",
        "/api/files/upload",
        data=head.encode() + b"1\r\n--xx--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=xx"},
    )
    assert answer.status in {200, 400}
    made = {path: data for path, data in state_of(outside).items() if path not in before}
    assert all(path.startswith("files/") and path.count("/") == 1 for path in made)
    assert {path: data for path, data in state_of(outside).items() if path in before} == before


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_an_upload_is_found_by_either_form_of_its_name(app, form):
    name = unicodedata.normalize(form, "\u00e9.pt")
    other = unicodedata.normalize("NFD" if form == "NFC" else "NFC", name)
    head = f'--xx\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    answer = await app.ask(
        "POST",
        "/api/models/upload",
        data=head.encode() + b"weights\r\n--xx--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=xx"},
    )
    assert answer.json["name"] == unicodedata.normalize("NFC", name)
    for asked in (name, other):
        assert (await app.get(f"/api/models/download/{asked}")).body == b"weights"
    assert (await app.ask("DELETE", f"/api/models/{other}")).status == 200
    assert (await app.get("/api/models/list")).json == []


async def test_two_files_whose_names_differ_in_their_form_alone_stay_two(app):
    folder = app.plane.install.folders().of(Family.MODELS)
    names = [unicodedata.normalize(form, "\u00e9.pt") for form in ("NFC", "NFD")]
    for name in names:
        (folder / name).write_text(name)
    assert sorted(row["name"] for row in (await app.get("/api/models/list")).json) == sorted(names)
    for name in names:
        assert (await app.get(f"/api/models/download/{name}")).body == name.encode()
