"""Tables: reading, picking, scaling, splitting, and made-up ones."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from codefyui_core.errors import CodefyError
from codefyui_core.plugin import Family, ParamKind
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.data.csv_reader import CSVReader
from codefyui_nodes_torch.data.normalize import Normalize
from codefyui_nodes_torch.data.selectors import ColumnSelector, RowSelector
from codefyui_nodes_torch.data.split import TrainTestSplit
from codefyui_nodes_torch.data.synthetic import SyntheticDataset
from codefyui_nodes_torch.data.tensor_input import TensorInput

SAMPLE = Path(__file__).parents[3] / "backend" / "data" / "samples" / "iris.csv"
MIXED = "name,a,b,ok,note\nx,1,2.5,True,\ny,3,,False,text\n"


def read(root, text, **params):
    context = RecordingContext(root=root)
    context.output_file(Family.FILES, "t.csv").write_text(text, encoding="utf-8")
    return execute(CSVReader, {}, context, path="t.csv", **params), context


def test_the_bundled_sample_is_iris(tmp_path):
    context = RecordingContext(root=tmp_path)
    context.output_file(Family.FILES, "data/samples/iris.csv").write_bytes(SAMPLE.read_bytes())
    table = execute(CSVReader, {}, context, target_column="species")
    iris = load_iris()
    assert torch.equal(table["tensor"], torch.tensor(iris.data, dtype=torch.float32))
    assert table["labels"] == [str(iris.target_names[kind]) for kind in iris.target]
    assert table["columns"] == ["sepal_length", "sepal_width", "petal_length", "petal_width"]


def test_columns_of_numbers_are_taken_and_empty_cells_are_told(tmp_path):
    table, context = read(tmp_path, MIXED, target_column="name")
    assert table["columns"] == ["a", "b", "ok"]
    assert torch.equal(table["tensor"].nan_to_num(-1.0), torch.tensor([[1.0, 2.5, 1.0], [3.0, -1.0, 0.0]]))
    assert table["tensor"].dtype == torch.float32
    assert table["labels"] == ["x", "y"]
    assert context.lines == ["1 cells of t.csv are empty and become NaN"]


def test_named_columns_keep_their_order(tmp_path):
    table, _ = read(tmp_path, MIXED, include_columns=" b , a ")
    assert table["columns"] == ["b", "a"]
    assert table["tensor"][0].tolist() == [2.5, 1.0]
    assert table["labels"] == []


def test_without_a_header_columns_are_numbered(tmp_path):
    table, _ = read(tmp_path, "1,2\n3,4\n", skip_header=False, target_column="1")
    assert table["columns"] == ["0"]
    assert table["tensor"].tolist() == [[1.0], [3.0]]
    assert table["labels"] == ["2", "4"]


@pytest.mark.parametrize(
    ("text", "params", "part"),
    [
        (MIXED, {"target_column": "q"}, "no column 'q'; there are name, a, b, ok, note"),
        (MIXED, {"include_columns": "a,q"}, "no column 'q'"),
        (MIXED, {"include_columns": "name"}, "column 'name' holds texts"),
        ("", {}, "can't be read as a table"),
        ("a,b\n1,2\n1,2,3\n", {}, "can't be read as a table"),
    ],
)
def test_a_table_that_does_not_fit_is_explained(text, params, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        read(tmp_path, text, **params)


def test_a_changed_file_is_another_result(tmp_path):
    context = RecordingContext(root=tmp_path)
    path = context.output_file(Family.FILES, "t.csv")

    def fingerprint():
        return CSVReader.fingerprint({"path": "t.csv"}, context.folders)

    path.write_text("a\n1\n")
    first = fingerprint()
    assert fingerprint() == first
    path.write_text("a\n2\n")
    os.utime(path, ns=(1, 1))
    assert fingerprint() != first


@pytest.mark.spec("usesfiles/upload-readers-count")
def test_the_path_is_a_file_field():
    path = CSVReader.define("").params[0]
    assert (path.kind, path.family) == (ParamKind.DATA_FILE, Family.FILES)


# Selectors

TABLE = torch.arange(24).reshape(4, 6)


@given(st.lists(st.integers(0, 3), max_size=6))
def test_rows_and_columns_come_in_the_order_asked(places):
    text = ", ".join(map(str, places))
    rows = execute(RowSelector, {"tensor": TABLE}, indices=text)["tensor"]
    columns = execute(ColumnSelector, {"tensor": TABLE}, indices=text)["tensor"]
    assert torch.equal(rows, TABLE[places])
    assert torch.equal(columns, TABLE[:, places])
    assert rows.dtype == torch.int64


def test_names_win_over_indices_and_take_the_first_match(tmp_path):
    names = ["a", "b", "c", "b"]
    picked = execute(
        RowSelector, {"tensor": TABLE, "labels": names}, root=tmp_path, names="b, a", indices="3"
    )
    assert torch.equal(picked["tensor"], TABLE[[1, 0]])
    columns = execute(ColumnSelector, {"tensor": TABLE, "columns": list("abcdef")}, root=tmp_path, names="f")
    assert torch.equal(columns["tensor"], TABLE[:, [5]])


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"indices": "6"}, "there is no 6: it counts from 0 to 5"),
        ({"indices": "-1"}, "there is no -1"),
        ({"indices": "a"}, "whole numbers"),
        ({"names": "q"}, "columns has no 'q'"),
    ],
)
def test_a_selection_that_is_not_there_is_explained(params, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        execute(ColumnSelector, {"tensor": TABLE, "columns": list("abcdef")}, root=tmp_path, **params)


def test_names_need_their_port_wired(tmp_path):
    with pytest.raises(CodefyError, match="needs columns wired"):
        execute(ColumnSelector, {"tensor": TABLE}, root=tmp_path, names="a")


# Normalize


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("mode", "scaler"), [("zscore", StandardScaler), ("minmax", MinMaxScaler)])
def test_scales_are_scikit_learns(mode, scaler, axis, tmp_path):
    table = np.random.default_rng(0).normal(size=(5, 3))
    expected = scaler().fit_transform(table if axis == 0 else table.T)
    out = execute(Normalize, {"tensor": torch.tensor(table)}, root=tmp_path, mode=mode, axis=axis)
    wanted = torch.tensor(expected if axis == 0 else expected.T, dtype=torch.float32)
    assert torch.allclose(out["tensor"], wanted, atol=1e-5)
    assert len(out["stats"]) == table.shape[1 - axis]


def test_unit_norm_and_constants(tmp_path):
    table = torch.tensor([[3, 0], [4, 0]])
    unit = execute(Normalize, {"tensor": table}, root=tmp_path, mode="unit_norm")
    assert torch.allclose(unit["tensor"], torch.tensor([[0.6, 0.0], [0.8, 0.0]]))
    assert unit["stats"] == [{"norm": 5.0}, {"norm": 0.0}]
    flat = torch.full((3, 1), 7.0)
    assert execute(Normalize, {"tensor": flat}, root=tmp_path)["tensor"].tolist() == [[0.0]] * 3
    assert execute(Normalize, {"tensor": flat}, root=tmp_path)["stats"] == [{"mean": 7.0, "std": 0.0}]
    assert execute(Normalize, {"tensor": flat}, root=tmp_path, mode="minmax")["tensor"].abs().max() == 0


def test_an_axis_that_is_not_there_is_explained(tmp_path):
    with pytest.raises(CodefyError, match="axis 2"):
        execute(Normalize, {"tensor": torch.zeros(2, 2)}, root=tmp_path, axis=2)
    with pytest.raises(CodefyError, match="nothing along the axis"):
        execute(Normalize, {"tensor": torch.zeros(0, 2)}, root=tmp_path)


# Split


@pytest.mark.parametrize("stratify", [False, True])
def test_a_split_is_scikit_learns(stratify, tmp_path):
    x = torch.arange(40.0, requires_grad=True).reshape(20, 2)
    y = [number % 2 for number in range(20)]
    out = execute(
        TrainTestSplit, {"features": x, "labels": y}, root=tmp_path, test_size=0.3, seed=1, stratify=stratify
    )
    a, b, c, d = train_test_split(
        x.detach().numpy(),
        y,
        test_size=0.3,
        random_state=1,
        stratify=[str(v) for v in y] if stratify else None,
    )
    assert out["x_train"].tolist() == a.tolist()
    assert out["x_test"].tolist() == b.tolist()
    assert (out["y_train"], out["y_test"]) == (c, d)
    assert out["x_train"].dtype == torch.float32


def test_labels_may_be_a_tensor_and_keep_their_type(tmp_path):
    out = execute(TrainTestSplit, {"features": torch.zeros(10, 1), "labels": torch.arange(10)}, root=tmp_path)
    assert sorted(out["y_train"] + out["y_test"]) == list(range(10))


@pytest.mark.parametrize(
    ("labels", "params", "part"),
    [
        ([0] * 10, {"test_size": 0.0}, "between 0 and 1"),
        ([0] * 10, {"test_size": 1.0}, "between 0 and 1"),
        ([0] * 9 + [1], {"stratify": True}, "can't be split so"),
        ([0] * 9, {}, "10 rows and labels 9"),
    ],
)
def test_a_split_that_can_not_be_is_explained(labels, params, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        execute(TrainTestSplit, {"features": torch.zeros(10, 2), "labels": labels}, root=tmp_path, **params)


# TensorInput


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bool"])
@pytest.mark.parametrize("mode", ["explicit", "random", "zeros", "ones", "arange"])
def test_every_mode_fills_every_type(mode, dtype, tmp_path):
    out = execute(
        TensorInput, {}, root=tmp_path, shape="2, 2,", dtype=dtype, value_mode=mode, values=[[0, 1], [2, 1]]
    )["tensor"]
    kind = getattr(torch, dtype)
    assert (out.shape, out.dtype) == ((2, 2), kind)
    known = {
        "explicit": torch.tensor([[0, 1], [2, 1]]),
        "zeros": torch.zeros(2, 2),
        "ones": torch.ones(2, 2),
        "arange": torch.arange(4).reshape(2, 2),
    }
    if mode in known:
        assert torch.equal(out, known[mode].to(kind))


def test_random_numbers_follow_the_seed(tmp_path):
    def draw(**params):
        return execute(TensorInput, {}, root=tmp_path, shape="100", **params)["tensor"]

    assert torch.equal(draw(seed=3), torch.randn(100, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(draw(seed=3), draw(seed=3))
    assert not torch.equal(draw(seed=3), draw(seed=4))
    assert set(draw(dtype="int64").tolist()) <= set(range(10))
    assert draw(dtype="bool").float().mean() == pytest.approx(0.5, abs=0.2)


def test_typed_fractions_are_cut_for_whole_numbers(tmp_path):
    out = execute(
        TensorInput, {}, root=tmp_path, shape="2", dtype="int64", value_mode="explicit", values=[1.9, -1.9]
    )
    assert out["tensor"].tolist() == [1, -1]


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"values": None}, "values is empty"),
        ({"values": [1, 2, 3]}, "holds 4 numbers and values has 3"),
        ({"values": [1, 2, 3, "a"]}, "needs numbers"),
        ({"values": [1, 2, 3, None]}, "needs numbers"),
        ({"shape": ""}, "shape is empty"),
        ({"shape": "-2,2"}, "negative"),
    ],
)
def test_values_that_do_not_fit_are_explained(params, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        execute(TensorInput, {}, root=tmp_path, **({"shape": "2,2", "value_mode": "explicit"} | params))


# SyntheticDataset


@pytest.mark.parametrize(
    ("params", "make"),
    [
        (
            {"kind": "circles", "factor": 5.0},
            lambda: datasets.make_circles(50, noise=0.1, factor=0.99, random_state=42),
        ),
        ({"kind": "moons"}, lambda: datasets.make_moons(50, noise=0.1, random_state=42)),
        (
            {"kind": "blobs", "centers": 4},
            lambda: datasets.make_blobs(50, centers=4, cluster_std=0.5, random_state=42),
        ),
        (
            {"kind": "classification"},
            lambda: datasets.make_classification(
                50,
                n_features=2,
                n_informative=2,
                n_redundant=0,
                n_clusters_per_class=1,
                flip_y=0.1,
                random_state=42,
            ),
        ),
    ],
)
def test_figures_are_scikit_learns(params, make, tmp_path):
    points, labels = make()
    out = execute(SyntheticDataset, {}, root=tmp_path, n_samples=50, **params)
    assert torch.equal(out["tensor"], torch.tensor(points, dtype=torch.float32))
    assert out["labels"] == [str(label) for label in labels]
    assert out["columns"] == ["x0", "x1"]


def test_more_wrong_labels_than_labels_are_refused(tmp_path):
    with pytest.raises(CodefyError, match="at most 1"):
        execute(SyntheticDataset, {}, root=tmp_path, kind="classification", noise=1.5)
