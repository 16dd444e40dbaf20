"""Forms with files, as browsers send them and as they should not."""

import asyncio
import hashlib

import pytest
from aiohttp import FormData


def form(*files, field="file", **texts):
    data = FormData(quote_fields=False)
    for name, text in texts.items():
        data.add_field(name, text)
    for name, content in files:
        data.add_field(field, content, filename=name)
    return data


def multipart(*parts, boundary="xx", end=True):
    """A form by hand: each part's headers and content."""
    lines = [f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n" for head, content in parts]
    return b"".join(lines) + (f"--{boundary}--\r\n".encode() if end else b"")


FILE = 'Content-Disposition: form-data; name="file"; filename="a.csv"'
FORM = {"Content-Type": "multipart/form-data; boundary=xx"}


async def upload(app, data, *, family="files", query="", **more):
    return await app.ask("POST", f"/api/{family}/upload{query}", data=data, **more)


async def test_a_file_is_taken_in_listed_sent_and_deleted(app):
    content = b"x,y\n1,2\n" * 50_000
    answer = await upload(app, form(("a b.csv", content)))
    assert answer.json == {
        "name": "a b.csv",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "replaced": False,
    }
    rows = (await app.get("/api/files/list")).json
    assert [(row["name"], row["size_bytes"]) for row in rows] == [("a b.csv", len(content))]
    part = await app.get("/api/files/download/a%20b.csv", headers={"Range": "bytes=0-2"})
    assert (part.status, part.body) == (206, b"x,y")
    assert "attachment" in part.headers["Content-Disposition"]
    assert (await app.ask("DELETE", "/api/files/a%20b.csv")).json == {"name": "a b.csv", "deleted": True}
    (await app.get("/api/files/download/a%20b.csv")).refused(404, "upload.not_found")
    (await app.ask("DELETE", "/api/files/a%20b.csv")).refused(404, "upload.not_found")


async def test_each_family_takes_its_own_kinds(app):
    for family, name in (("images", "a.PNG"), ("models", "w.safetensors"), ("files", "t.json")):
        assert (await upload(app, form((name, b"1")), family=family)).status == 200
        (await upload(app, form(("a.exe", b"1")), family=family)).refused(400, "upload.bad_type")


async def test_other_content_under_a_taken_name_needs_to_be_asked_for(app):
    await upload(app, form(("a.csv", b"1")))
    same = await upload(app, form(("a.csv", b"1")))
    assert (same.status, same.json["replaced"]) == (200, False)
    (await upload(app, form(("a.csv", b"2")))).refused(409, "upload.exists")
    over = await upload(app, form(("a.csv", b"2")), query="?overwrite=1")
    assert (over.status, over.json["replaced"]) == (200, True)


async def test_of_two_at_once_under_one_name_one_is_refused(app):
    answers = await asyncio.gather(*(upload(app, form(("a.csv", bytes([n]) * 100_000))) for n in range(4)))
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]


async def test_several_files_in_one_form(app):
    answer = await upload(app, form(("a.csv", b"1"), ("b.csv", b"2"), note="hello"))
    assert [one["name"] for one in answer.json["files"]] == ["a.csv", "b.csv"]
    assert len((await app.get("/api/files/list")).json) == 2


@pytest.mark.parametrize("name", ["a?.csv", "con.csv", "x" * 260 + ".csv", ".csv.", "a\u0001.csv"])
async def test_names_that_some_system_can_not_hold_are_refused(app, name):
    answer = await upload(app, multipart((FILE.replace("a.csv", name), b"1")), headers=FORM)
    assert answer.json["code"] in {"upload.bad_name", "upload.bad_type", "request.invalid"}
    assert answer.status == 400
    assert (await app.get("/api/files/list")).json == []


async def test_a_path_in_a_name_is_cut_off(app):
    answer = await upload(app, multipart((FILE.replace("a.csv", "../../up.csv"), b"1")), headers=FORM)
    assert answer.json["name"] == "up.csv"
    assert (app.plane.install.data / "files" / "up.csv").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (multipart((FILE, b"half"), end=False), FORM),
        (b"--xx\r\n" + FILE.encode() + b"\r\n\r\nhalf", FORM),
        (b"--xx\r\n" + FILE.encode(), FORM),
        (b"", FORM),
        (b"no form at all", FORM),
        (multipart((FILE, b"1")), {"Content-Type": "multipart/form-data"}),
        (multipart((FILE, b"1")), {"Content-Type": "multipart/form-data; boundary=" + "y" * 80}),
        (multipart((FILE, b"1")), {"Content-Type": "multipart/form-data; boundary=yy"}),
        (b"x,y", {"Content-Type": "text/csv"}),
        (multipart(('Content-Disposition: form-data; name="other"; filename="a.csv"', b"1")), FORM),
        (multipart((f"{FILE}\r\nContent-Type: multipart/mixed; boundary=zz", b"1")), FORM),
        (multipart(("no colon", b"1")), FORM),
    ],
)
async def test_a_form_that_is_none_is_refused_and_leaves_nothing(app, data, headers):
    answer = await upload(app, data, headers=headers)
    answer.refused(400, "request.invalid")
    assert list((app.plane.install.data / "files").iterdir()) == []


async def test_a_file_without_a_name_is_refused(app):
    answer = await upload(app, multipart(('Content-Disposition: form-data; name="file"', b"1")), headers=FORM)
    answer.refused(400, "upload.bad_name")


async def test_a_form_has_at_most_a_hundred_parts(app):
    note = ('Content-Disposition: form-data; name="note"', b"x")
    assert (await upload(app, multipart(*[note] * 99, (FILE, b"1")), headers=FORM)).status == 200
    (await upload(app, multipart(*[note] * 101), headers=FORM)).refused(400, "request.invalid")


async def chunks(data, size=8192):
    for place in range(0, len(data), size):
        yield data[place : place + size]


async def test_files_and_forms_are_counted_as_they_arrive(make_app_of):
    app = await make_app_of(max_upload_size="100000")
    large = multipart((FILE, b"x" * 100_001))
    answer = await upload(app, chunks(large), headers=FORM)
    assert "CODEFYUI_MAX_UPLOAD_SIZE" in answer.refused(413, "request.too_large")["detail"]
    exact = multipart((FILE, b"x" * 100_000))
    assert (await upload(app, chunks(exact), headers=FORM)).status == 200
    padding = ('Content-Disposition: form-data; name="note"', b"x" * 400_000)
    answer = await upload(app, chunks(multipart(padding, (FILE, b"1"))), headers=FORM)
    answer.refused(413, "request.too_large")
    preamble = b"x\r\n" * 150_000 + multipart((FILE, b"1"))
    answer = await upload(app, chunks(preamble), headers=FORM)
    answer.refused(413, "request.too_large")
    announced = await upload(app, b"x" * 400_000, headers=FORM)
    announced.refused(413, "request.too_large")


async def test_a_line_that_breaks_leaves_nothing_behind(app, until):
    head = (
        f"POST /api/files/upload HTTP/1.1\r\nHost: localhost\r\nX-CodefyUI-Token: {app.plane.token}\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: 100000\r\n\r\n"
    )
    folder = app.plane.install.data / "files"
    _, writer = await asyncio.open_connection(app.client.host, app.client.port)
    writer.write(head.encode() + multipart((FILE, b"x" * 50_000), end=False))
    await writer.drain()
    async with asyncio.timeout(10):
        await until(lambda: list(folder.iterdir()))
        writer.close()
        await writer.wait_closed()
        await until(lambda: not list(folder.iterdir()))


@pytest.mark.parametrize(
    "name", ["..%2Fx.csv", "%2Fetc%2Fpasswd", "a%00.csv", "nothing.csv", "deep/none.csv"]
)
async def test_downloads_stay_in_their_folder(app, name):
    answer = await app.get(f"/api/files/download/{name}")
    assert answer.json["code"] in {"files.bad_name", "upload.not_found"}


async def test_nested_files_are_sent(app):
    folder = app.plane.install.data / "models" / "deep"
    folder.mkdir(parents=True)
    (folder / "w.pt").write_bytes(b"weights")
    assert [row["name"] for row in (await app.get("/api/models/list")).json] == ["deep/w.pt"]
    answer = await app.get("/api/models/download/deep/w.pt")
    assert (answer.body, 'filename="w.pt"' in answer.headers["Content-Disposition"]) == (b"weights", True)
    (await app.get("/api/models/download/deep")).refused(400, "files.bad_name")
