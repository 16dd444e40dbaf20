"""FileReader, ImageReader and ImageWriter: what is in the files, and nothing quietly lost."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from codefyui_core.errors import CodefyError
from codefyui_core.plugin import Family, FileRole
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.io.file_reader import FileReader
from codefyui_nodes_torch.io.fingerprint import HASHED_BYTES, of_file
from codefyui_nodes_torch.io.image_reader import ImageReader
from codefyui_nodes_torch.io.image_writer import ImageWriter


@pytest.fixture
def context(tmp_path):
    (tmp_path / "images").mkdir()
    return RecordingContext(root=tmp_path)


def read(context, data, **params):
    (context.root / "a.txt").write_bytes(data)
    return execute(FileReader, {}, context, path="a.txt", **params)


def test_the_params_say_which_files_are_used():
    roles = {
        (node.type, param.name): (param.path, param.family)
        for node in (FileReader, ImageWriter)
        for param in node.params
        if param.path
    }
    assert roles == {
        ("FileReader", "path"): (FileRole.READS, None),
        ("ImageWriter", "path"): (FileRole.WRITES, Family.OUTPUT),
    }
    assert ImageReader.params[0].family is Family.IMAGES


def test_text_is_read_whole(context):
    out = read(context, "één\r\ntwee\n".encode())
    assert out["text"] == "één\ntwee\n"
    assert out["tensor"].shape == (0,)


def test_a_byte_order_mark_is_no_text(context):
    assert read(context, b"\xef\xbb\xbfa")["text"] == "a"
    assert read(context, "a".encode("utf-16"), encoding="utf-16")["text"] == "a"


def test_another_encoding(context):
    assert read(context, b"\xe9t\xe9", encoding="latin-1")["text"] == "été"


def test_a_table_without_its_header(context):
    out = read(context, b"x, y\n1, 2.5\n\n-3,1e2\n", mode="csv")
    assert torch.equal(out["tensor"], torch.tensor([[1, 2.5], [-3, 100]]))
    assert out["tensor"].dtype is torch.float32
    assert out["text"].startswith("x, y")


def test_a_table_without_names(context):
    out = read(context, b'1,"2"\n', mode="csv", csv_header=False)
    assert torch.equal(out["tensor"], torch.tensor([[1.0, 2.0]]))


@pytest.mark.parametrize(("data", "shape"), [(b"", (0, 0)), (b"x,y\n", (0, 2)), (b"x\nnan\ninf\n", (2, 1))])
def test_small_tables(data, shape, context):
    assert read(context, data, mode="csv")["tensor"].shape == shape


@pytest.mark.parametrize(
    ("data", "params", "message"),
    [
        (b"x\n1\ntwo\n", {"mode": "csv"}, "line 3 holds 'two', which is no number"),
        (b"x,y\n1,\n", {"mode": "csv"}, "line 2 holds '', which is no number"),
        (b"x,y\n1,2\n3\n", {"mode": "csv"}, "line 3 has 1 cells, the one before 2"),
        (b"\xff", {}, "a.txt isn't utf-8 text"),
        (b"a", {"encoding": "no-such"}, "encoding 'no-such' isn't known"),
    ],
)
def test_what_cannot_be_read_is_named(data, params, message, context):
    with pytest.raises(ValueError, match=f"FileReader: .*{message}"):
        read(context, data, **params)


def test_a_path_that_leads_nowhere(context):
    with pytest.raises(ValueError, match="path is empty"):
        execute(FileReader, {}, context)
    with pytest.raises(ValueError, match="is no file"):
        execute(FileReader, {}, context, path="images")
    with pytest.raises(CodefyError) as caught:
        execute(FileReader, {}, context, path="absent.txt")
    assert caught.value.code == "files.not_found"


def test_the_cache_knows_when_a_file_changed(context, monkeypatch):
    monkeypatch.chdir(context.root)

    def mark():
        return FileReader.fingerprint({"path": "a.txt"}, context.folders)

    absent = mark()
    Path("a.txt").write_text("one")
    first = mark()
    assert first == mark()
    Path("a.txt").write_text("two")
    assert len({absent, first, mark()}) == 3


def test_the_cache_knows_when_a_picture_changed(context):
    def mark():
        return ImageReader.fingerprint({"path": "p.png"}, context.folders)

    absent = mark()
    save(context, np.zeros((2, 2), np.uint8))
    first = mark()
    save(context, np.ones((2, 2), np.uint8))
    assert len({absent, first, mark()}) == 3


def test_a_large_file_is_not_hashed(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(HASHED_BYTES + 1)
    assert of_file(tmp_path / "absent", path) == f"{HASHED_BYTES + 1}-{path.stat().st_mtime_ns}"


@pytest.mark.parametrize("name", ["absent", "", "\0"])
def test_no_earlier_result_fits_a_file_that_is_not_there(name, tmp_path):
    assert of_file(tmp_path / name) != of_file(tmp_path / name)


def pixels(*shape):
    return np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)


def save(context, array, name="p.png", **options):
    Image.fromarray(array).save(context.root / "images" / name, **options)


def read_picture(context, name="p.png", **params):
    return execute(ImageReader, {}, context, path=name, **params)


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1), ("RGBA", 4)])
def test_a_picture_is_read_as_channels_of_fractions(mode, channels, context):
    array = pixels(4, 5, 3)
    save(context, array)
    out = read_picture(context, mode=mode)
    expected = np.asarray(Image.fromarray(array).convert(mode)).reshape(4, 5, channels)
    assert torch.equal(out["tensor"], torch.from_numpy(expected.copy()).permute(2, 0, 1) / 255)
    assert torch.equal(out["image"], out["tensor"])
    assert out["tensor"].dtype is torch.float32


def test_a_picture_is_resized_to_a_square(context):
    array = pixels(8, 4, 3)
    save(context, array)
    expected = np.asarray(Image.fromarray(array).resize((6, 6), Image.Resampling.BILINEAR))
    out = read_picture(context, resize=6)["tensor"]
    assert torch.equal(
        (out * 255).round().to(torch.uint8), torch.from_numpy(expected.copy()).permute(2, 0, 1)
    )


def test_a_picture_is_turned_upright(context):
    array = pixels(4, 6, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    save(context, array, exif=exif)
    out = read_picture(context)["tensor"]
    assert torch.equal(out, torch.from_numpy(np.rot90(array, -1).copy()).permute(2, 0, 1) / 255)


def test_grey_of_sixteen_bits_keeps_its_range(context):
    save(context, np.array([[0, 0x8000, 0xFFFF]], dtype=np.uint16))
    out = read_picture(context, mode="L")["tensor"]
    assert torch.allclose(out, torch.tensor([[[0, 0.5, 1]]]), atol=0.003)


def test_a_picture_that_cannot_be_read_is_named(context):
    folder = context.root / "images"
    (folder / "text.png").write_text("no picture")
    save(context, pixels(64, 64, 3), "whole.png")
    (folder / "part.png").write_bytes((folder / "whole.png").read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"path text.png can't be read as a picture: its format isn't known"):
        read_picture(context, "text.png")
    with pytest.raises(ValueError, match=r"path part.png can't be read as a picture: .*truncated"):
        read_picture(context, "part.png")
    with pytest.raises(ValueError, match="path is empty"):
        read_picture(context, " ")
    with pytest.raises(CodefyError) as caught:
        read_picture(context, "absent.png")
    assert caught.value.code == "files.not_found"


def write(context, image, **params):
    out = execute(ImageWriter, {"image": image}, context, **params)
    assert [path.suffix for path in (context.root / "output").iterdir() if path.suffix == ".part"] == []
    return [Path(line) for line in out["path"].splitlines()]


def written(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4, 5), (4, 5), (1, 3, 4, 5)])
def test_an_image_comes_back_as_it_was_written(kind, shape, context):
    array = pixels(*shape)
    (path,) = write(context, torch.from_numpy(array).float() / 255, format=kind)
    assert path.is_absolute()
    assert path.parent == context.root / "output"
    expected = np.moveaxis(array.reshape(-1, 4, 5), 0, -1).squeeze()
    assert np.array_equal(written(path), expected)
    with Image.open(path) as image:
        assert image.format == kind


def test_a_jpeg_is_near_what_was_written(context):
    smooth = torch.linspace(0, 1, 64).expand(3, 32, 64)
    (path,) = write(context, smooth, format="JPEG", path="sub/x")
    assert path == context.root / "output" / "sub" / "x.jpg"
    assert np.abs(written(path).astype(int) - 255 * smooth.permute(1, 2, 0).numpy()).max() < 8


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_transparency_is_kept(kind, context):
    array = pixels(4, 3, 5)
    (path,) = write(context, torch.from_numpy(array), format=kind)
    assert np.array_equal(written(path), np.moveaxis(array, 0, -1))


def test_every_image_of_a_batch_is_written(context):
    batch = pixels(11, 3, 4, 5)
    paths = write(context, torch.from_numpy(batch), path="b.png")
    assert [path.name for path in paths] == [f"b_{n:02}.png" for n in range(11)]
    for path, array in zip(paths, batch, strict=True):
        assert np.array_equal(written(path), np.moveaxis(array, 0, -1))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (torch.tensor([[True, False]]), [[255, 0]]),
        (torch.tensor([[0, 200]]), [[0, 200]]),
        (torch.tensor([[0.5, 1.0]], dtype=torch.float16), [[128, 255]]),
        (torch.tensor([[0.25, 0.75]], requires_grad=True), [[64, 191]]),
    ],
)
def test_values_of_any_dtype(image, expected, context):
    (path,) = write(context, image)
    assert written(path).tolist() == expected
    assert context.lines == []


def test_values_that_are_cut_off_are_told(context):
    (path,) = write(context, torch.tensor([[-1.0, 0.0, 1.0, 2.0]]))
    assert written(path).tolist() == [[0, 0, 255, 255]]
    assert context.lines == ["2 of 4 values lie outside 0 to 1 and are cut off (lowest -1, highest 2)"]


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("x.png", "JPEG", "x.jpg"),
        ("x.JPEG", "JPEG", "x.JPEG"),
        ("x.tif", "TIFF", "x.tif"),
        ("v1.2", "PNG", "v1.2.png"),
        ("a.b/c", "BMP", "a.b/c.bmp"),
    ],
)
def test_the_ending_follows_from_the_format(path, kind, expected, context):
    (found,) = write(context, torch.zeros(3, 2, 2), path=path, format=kind)
    assert found == context.root / "output" / expected


@pytest.mark.parametrize(
    ("image", "params", "message"),
    [
        (torch.zeros(2, 4, 4), {}, r"image needs 1, 3 or 4 channels.*it got \(2, 4, 4\)"),
        (
            torch.zeros(3),
            {},
            r"image needs the shape \(C, H, W\) or \(H, W\) or \(N, C, H, W\); it got \(3,\)",
        ),
        (torch.zeros(3, 0, 4), {}, "and pixels"),
        (torch.full((1, 2, 2), torch.nan), {}, "image holds values that aren't finite"),
        (torch.zeros(4, 2, 2), {"format": "JPEG"}, "transparency, which JPEG can't hold"),
        (torch.zeros(3, 2, 2), {"path": " "}, "path is empty"),
        (None, {}, "image needs a tensor; it got nothing"),
    ],
)
def test_an_image_that_cannot_be_written_is_named_and_nothing_is_written(image, params, message, context):
    with pytest.raises(ValueError, match=f"ImageWriter: .*{message}"):
        execute(ImageWriter, {"image": image}, context, **params)
    assert not list(context.root.rglob("output/*"))


def test_the_writer_runs_again_each_time():
    assert not ImageWriter.cacheable


def test_what_is_written_can_be_read(context):
    image = torch.from_numpy(pixels(3, 4, 5)).float() / 255
    (path,) = write(context, image)
    assert torch.equal(read_picture(context, str(path))["image"], image)
