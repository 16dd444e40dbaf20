"""Dataset, DataLoader, DatasetBatch and Transform."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.data.batch import DatasetBatch
from codefyui_nodes_torch.data.dataset import Dataset
from codefyui_nodes_torch.data.idx import read_idx
from codefyui_nodes_torch.data.loader import DataLoader
from codefyui_nodes_torch.data.transform import Transform


def dataset(root, **params):
    return execute(Dataset, {}, RecordingContext(root=root), **params)["dataset"]


def everything(items):
    return torch.stack([x for x, _ in items]), torch.tensor([y for _, y in items])


# scikit-learn's


@pytest.mark.parametrize("split", ["train", "test"])
def test_digits_are_pictures_between_minus_1_and_1(split, tmp_path):
    images, labels = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(1797), test_size=0.2, random_state=42, stratify=labels)
    rows = train if split == "train" else test
    x, y = everything(dataset(tmp_path, name="Digits", split=split))
    expected = torch.tensor(images[rows].reshape(-1, 1, 8, 8) / 16 * 2 - 1, dtype=torch.float32)
    assert x.dtype == torch.float32
    assert torch.allclose(x, expected)
    assert y.tolist() == labels[rows].tolist()
    assert isinstance(dataset(tmp_path, name="Digits")[0][1], int)


@pytest.mark.parametrize(
    ("name", "load"), [("Iris", load_iris), ("Wine", load_wine), ("BreastCancer", load_breast_cancer)]
)
def test_tables_are_split_by_class_without_loss(name, load, tmp_path):
    rows, labels = load(return_X_y=True)
    train, test = (everything(dataset(tmp_path, name=name, split=split)) for split in ("train", "test"))
    assert len(test[0]) == pytest.approx(len(rows) / 5, abs=1)
    both = torch.cat([train[0], test[0]])
    assert sorted(both.tolist()) == sorted(torch.tensor(rows, dtype=torch.float32).tolist())
    shares = [torch.bincount(part[1]) / len(part[1]) for part in (train, test)]
    assert torch.allclose(*shares, atol=0.03)
    assert torch.equal(torch.bincount(train[1]) + torch.bincount(test[1]), torch.tensor(np.bincount(labels)))


def test_an_index_outside_ends_an_iteration(tmp_path):
    items = dataset(tmp_path, name="Iris", split="test")
    assert len(list(items)) == 30
    assert torch.equal(items[-1][0], items[29][0])
    with pytest.raises(IndexError):
        items[30]


# Files


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist(folder, *, packed=False, count=5):
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count, dtype=np.uint8)
    for part in ("train", "t10k"):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(array)
            path = folder / f"{part}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
    return images


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "place"),
    [("MNIST", "data/MNIST/raw"), ("MNIST", "data"), ("FashionMNIST", "data/FashionMNIST/raw")],
)
def test_idx_files_are_read_from_the_cache_folder(name, place, packed, tmp_path):
    images = mnist(tmp_path / "cache" / place, packed=packed)
    for split in ("train", "test"):
        x, y = everything(dataset(tmp_path, name=name, split=split))
        assert torch.allclose(x, torch.tensor(images).unsqueeze(1) / 255 * 2 - 1, atol=1e-6)
        assert y.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "title", "file"),
    [
        ("MNIST", "MNIST download", "train-images-idx3-ubyte.gz"),
        ("FashionMNIST", "FashionMNIST download", "train-labels-idx1-ubyte.gz"),
        ("CIFAR10", "CIFAR-10 download", "data_batch_5.bin"),
    ],
)
def test_missing_files_say_what_to_fetch_and_where_to_put_it(name, title, file, tmp_path):
    with pytest.raises(CodefyError, match=title) as caught:
        dataset(tmp_path, name=name, data_dir="sets")
    assert caught.value.code == "files.not_found"
    assert file in str(caught.value)
    assert str(tmp_path / "cache" / "sets") in str(caught.value)
    assert "nothing is downloaded by itself" in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: b"\0\0\x0d" + data[3:], lambda data: data[:3], lambda _: b""],
)
def test_a_damaged_idx_file_is_named(damage, tmp_path):
    mnist(tmp_path / "cache" / "data")
    path = tmp_path / "cache" / "data" / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CodefyError, match="train-images-idx3-ubyte can't be read"):
        dataset(tmp_path)


@given(cut=st.integers(0, 4 + 4 * 3 + 2 * 3 * 3 - 1), packed=st.booleans())
def test_an_idx_file_cut_anywhere_is_refused(cut, packed, tmp_path_factory):
    data = idx(np.zeros((2, 3, 3), dtype=np.uint8))
    path = tmp_path_factory.mktemp("idx") / "images"
    path.write_bytes(gzip.compress(data)[: cut + 4] if packed else data[:cut])
    if packed and len(gzip.compress(data)) <= cut + 4:
        assert read_idx(path).shape == (2, 3, 3)
        return
    with pytest.raises(CodefyError, match="images can't be read"):
        read_idx(path)


def test_the_cache_folder_can_not_be_left(tmp_path):
    with pytest.raises(CodefyError, match=r"without \.\."):
        dataset(tmp_path, data_dir="../elsewhere")


def cifar(folder, *, binary):
    folder.mkdir(parents=True)
    images = np.random.default_rng(1).integers(0, 256, (4, 3072), dtype=np.uint8)
    labels = [3, 1, 4, 9]
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        if binary:
            rows = np.concatenate([np.array(labels, dtype=np.uint8)[:, None], images], axis=1)
            (folder / f"{name}.bin").write_bytes(rows.tobytes())
        else:
            (folder / name).write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=2))
    return images


@pytest.mark.parametrize("binary", [True, False])
def test_both_versions_of_cifar_are_read(binary, tmp_path):
    images = cifar(
        tmp_path / "cache" / "data" / f"cifar-10-batches-{'bin' if binary else 'py'}", binary=binary
    )
    x, y = everything(dataset(tmp_path, name="CIFAR10", split="test"))
    assert torch.allclose(x, torch.tensor(images.reshape(4, 3, 32, 32)) / 255 * 2 - 1, atol=1e-6)
    assert y.tolist() == [3, 1, 4, 9]
    assert len(dataset(tmp_path, name="CIFAR10", split="train")) == 20


def test_a_batch_as_python_2_wrote_it_is_read(tmp_path):
    # As in the makers' files: byte strings without a codec, and numpy under its former module names.
    pixels = bytes(number % 256 for number in range(3072))
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00" + pixels + b"tb"
    )
    folder = tmp_path / "cache" / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "test_batch").write_bytes(b"\x80\x02}(U\x04data" + array + b"U\x06labels](K\x07eu.")
    image, label = dataset(tmp_path, name="CIFAR10", split="test")[0]
    assert label == 7
    expected = torch.tensor(list(pixels)).reshape(3, 32, 32) / 255 * 2 - 1
    assert torch.allclose(image, expected, atol=1e-6)


class _Trap:
    def __reduce__(self):
        import os

        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("content", [_Trap(), {"data": _Trap(), "labels": [1]}, {"labels": [1]}, [1], None])
def test_a_batch_that_holds_anything_else_is_refused_and_not_run(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cache" / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(CodefyError, match="test_batch can't be read"):
        dataset(tmp_path, name="CIFAR10", split="test")
    assert not (tmp_path / "trapped").exists()


# DataLoader


def batches(loader):
    return [x.flatten().tolist() for x, _ in loader]


def test_a_loader_keeps_its_short_last_batch(tmp_path):
    items = TensorDataset(torch.arange(5.0), torch.arange(5))
    loader = execute(DataLoader, {"dataset": items}, root=tmp_path, batch_size=2, shuffle=False)["dataloader"]
    assert batches(loader) == [[0, 1], [2, 3], [4]]
    assert DataLoader.define("").cacheable is False


def test_a_seeded_run_shuffles_alike_and_each_epoch_anew(tmp_path):
    items = TensorDataset(torch.arange(40.0), torch.arange(40))

    def order(seed):
        context = RecordingContext(root=tmp_path, seed=seed)
        loader = execute(DataLoader, {"dataset": items}, context, batch_size=40)["dataloader"]
        return batches(loader) + batches(loader)

    first = order(0)
    assert order(0) == first
    assert first[0] != first[1]
    assert order(1) != first
    assert sorted(first[0]) == list(range(40))


def test_worker_processes_give_the_same_batches(tmp_path):
    items = dataset(tmp_path, name="Iris", split="test")
    loader = execute(
        DataLoader, {"dataset": items}, root=tmp_path, batch_size=8, shuffle=False, num_workers=1
    )["dataloader"]
    assert torch.equal(torch.cat([x for x, _ in loader]), everything(items)[0])


def test_an_empty_data_set_is_refused(tmp_path):
    empty = TensorDataset(torch.zeros(0), torch.zeros(0))
    for node in (DataLoader, DatasetBatch, Transform):
        with pytest.raises(CodefyError, match="empty"):
            execute(node, {"dataset": empty}, root=tmp_path)


# DatasetBatch


def test_a_batch_goes_round_the_data_set(tmp_path):
    items = [(torch.tensor([float(n)]), n) for n in range(3)]
    batch = execute(DatasetBatch, {"dataset": items}, root=tmp_path, batch_size=4, start_index=5)
    assert batch["images"].tolist() == [[2.0], [0.0], [1.0], [2.0]]
    assert batch["labels"].tolist() == [2, 0, 1, 2]
    assert batch["labels"].dtype == torch.int64


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ([0.25, 1.75], torch.float32),
        ([torch.tensor(0.5), torch.tensor(1.5)], torch.float32),
        ([True, False], torch.int64),
        ([torch.ones(2, 2, dtype=torch.uint8)] * 2, torch.uint8),
        ([np.float64(0.5), np.float64(1.5)], torch.float32),
    ],
)
def test_labels_keep_what_they_are(labels, dtype, tmp_path):
    items = [(torch.zeros(1), label) for label in labels]
    out = execute(DatasetBatch, {"dataset": items}, root=tmp_path, batch_size=2)["labels"]
    assert out.dtype == dtype
    assert torch.equal(out, torch.stack([torch.as_tensor(label).to(dtype) for label in labels]))


@pytest.mark.parametrize(
    ("items", "part"),
    [
        ([torch.zeros(1)], "two parts"),
        ([(torch.zeros(1), "cat")], "numbers"),
        ([(torch.zeros(1), 0), (torch.zeros(2), 0)], "different shapes"),
    ],
)
def test_items_that_make_no_batch_are_explained(items, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        execute(DatasetBatch, {"dataset": items}, root=tmp_path, batch_size=len(items))


# Transform


def test_a_transform_is_a_view_and_leaves_upstream_alone(tmp_path):
    digits = dataset(tmp_path, name="Digits")
    before = digits[0][0].clone()
    views = [
        execute(Transform, {"dataset": digits}, root=tmp_path, normalize=normalize)["dataset"]
        for normalize in (True, False)
    ]
    assert torch.equal(digits[0][0], before)
    assert torch.allclose(views[0][0][0], before, atol=1e-6)
    assert torch.allclose(views[1][0][0], (before + 1) / 2, atol=1e-6)
    assert views[0][0][1] == digits[0][1]
    again = execute(Transform, {"dataset": views[1]}, root=tmp_path)["dataset"]
    assert torch.allclose(again[0][0], before, atol=1e-6)
    assert len(again) == len(digits)


def test_resizing_is_bilinear_with_antialiasing(tmp_path):
    digits = dataset(tmp_path, name="Digits")
    view = execute(Transform, {"dataset": digits}, root=tmp_path, resize=5)["dataset"]
    expected = torch.nn.functional.interpolate(
        digits[3][0].unsqueeze(0), size=(5, 5), mode="bilinear", antialias=True
    )[0]
    assert torch.allclose(view[3][0], expected, atol=1e-6)


def test_values_of_an_unknown_data_set_are_told_by_its_first_picture(tmp_path):
    for first, low in ((torch.tensor([[[-1.0, 1.0]]]), -1.0), (torch.tensor([[[0.0, 1.0]]]), 0.0)):
        view = execute(Transform, {"dataset": [(first, 0)]}, root=tmp_path)["dataset"]
        assert view[0][0].tolist() == [[[-1.0, 1.0]]], low


def test_files_of_pictures_and_bytes_are_scaled(tmp_path):
    picture = Image.new("L", (2, 2), 255)
    colors = Image.new("RGB", (2, 2), (255, 0, 0))
    view = execute(Transform, {"dataset": [(picture, 0), (colors, 1)]}, root=tmp_path, normalize=False)[
        "dataset"
    ]
    assert view[0][0].tolist() == [[[1.0, 1.0], [1.0, 1.0]]]
    assert view[1][0][:, 0, 0].tolist() == [1.0, 0.0, 0.0]
    raw = [(torch.full((1, 2, 2), 255, dtype=torch.uint8), 0)]
    assert execute(Transform, {"dataset": raw}, root=tmp_path)["dataset"][0][0].max() == 1.0


def test_masks_are_resized_with_their_pictures(tmp_path):
    mask = torch.tensor([[0, 0, 2, 2]] * 4)
    items = [(torch.zeros(1, 4, 4), mask)]
    _, small = execute(Transform, {"dataset": items}, root=tmp_path, resize=2)["dataset"][0]
    assert small.tolist() == [[0, 2], [0, 2]]
    assert small.dtype == torch.int64


def test_without_scaling_values_stay_and_nothing_to_do_gives_the_same_object(tmp_path):
    items = [(torch.full((1, 4, 4), 7.0), 0)]
    small = execute(Transform, {"dataset": items}, root=tmp_path, resize=2, normalize=False, to_tensor=False)[
        "dataset"
    ]
    assert small[0][0].tolist() == [[[7.0, 7.0], [7.0, 7.0]]]
    same = execute(Transform, {"dataset": items}, root=tmp_path, normalize=False, to_tensor=False)
    assert same["dataset"] is items


@pytest.mark.parametrize("name", ["Iris", "Wine"])
def test_tables_are_no_pictures(name, tmp_path):
    with pytest.raises(CodefyError, match="needs pictures"):
        execute(Transform, {"dataset": dataset(tmp_path, name=name)}, root=tmp_path)
    with pytest.raises(CodefyError, match="needs to_tensor"):
        execute(Transform, {"dataset": dataset(tmp_path, name=name)}, root=tmp_path, to_tensor=False)
