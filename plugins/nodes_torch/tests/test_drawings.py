"""Drawings are PNG texts that show what came; figures don't outlive them."""

import base64
import gc
import io
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from sklearn.svm import SVC

from codefyui_core.testing.node_context import execute
from codefyui_nodes_torch.utility import drawing
from codefyui_nodes_torch.utility.arrays import to_array
from codefyui_nodes_torch.utility.decision_boundary import DecisionBoundary
from codefyui_nodes_torch.utility.images import picture
from codefyui_nodes_torch.utility.labels import classes_of, label_texts
from codefyui_nodes_torch.utility.scatter_plot import ScatterPlot2D
from codefyui_nodes_torch.utility.visualize import Visualize


def opened(text):
    image = Image.open(io.BytesIO(base64.b64decode(text, validate=True)))
    assert image.format == "PNG"
    return image.convert("RGB")


def colors(image):
    return {color for _, color in image.getcolors(maxcolors=1 << 24)}


@pytest.fixture
def figures(monkeypatch):
    """What was put on each sheet."""
    kept = []
    original = drawing.Sheet.png

    def png(self):
        axes = self.axes
        kept.append(
            {
                "title": axes.get_title(),
                "lines": [np.asarray(line.get_ydata()) for line in axes.lines],
                "bars": [patch.get_height() for patch in axes.patches],
                "images": [np.asarray(image.get_array()) for image in axes.images],
                "dots": [np.asarray(dots.get_offsets()) for dots in axes.collections],
                "legend": [text.get_text() for text in axes.get_legend().get_texts()]
                if axes.get_legend()
                else [],
                "xlabel": axes.get_xlabel(),
            }
        )
        return original(self)

    monkeypatch.setattr(drawing.Sheet, "png", png)
    return kept


def visualize(data, **params):
    return execute(Visualize, {"data": data}, **params)["image"]


def test_every_drawing_is_declared_as_an_image():
    for node in (Visualize, ScatterPlot2D, DecisionBoundary):
        assert [(port.type, port.media) for port in node.outputs] == [("STRING", "image")]


@pytest.mark.parametrize("plot_type", ["line", "histogram", "heatmap", "image"])
def test_visualize_gives_a_picture_of_its_size(plot_type):
    image = opened(
        visualize(torch.linspace(0, 1, 24).reshape(4, 6), plot_type=plot_type, title="cost $5 and $")
    )
    assert image.size == (800, 600)
    assert len(colors(image)) > 3


@pytest.mark.parametrize(
    "data",
    [
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16),
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        [[1, 2.0], [3, 4]],
        [torch.tensor([1, 2]), torch.tensor([3, 4])],
    ],
)
def test_a_line_shows_the_values_in_order_whatever_holds_them(data, figures):
    visualize(data)
    assert figures[0]["lines"][0].tolist() == [1, 2, 3, 4]


def test_a_single_number_is_a_line_of_one_point(figures):
    visualize(2.5, title="one")
    assert figures[0]["lines"][0].tolist() == [2.5]
    assert figures[0]["title"] == "one"


def test_a_histogram_counts_all_finite_values_in_fifty_bins(figures):
    visualize(torch.tensor([1.0, 2.0, 2.0, torch.nan, torch.inf]), plot_type="histogram")
    bars = figures[0]["bars"]
    assert (len(bars), sum(bars), max(bars)) == (50, 3, 2)
    assert figures[0]["xlabel"].startswith("2 values")


@pytest.mark.parametrize(
    ("shape", "expected"), [((5,), (3, 3)), ((2, 3), (2, 3)), ((2, 3, 4), (6, 4)), ((), (1, 1))]
)
def test_a_heatmap_has_two_axes(shape, expected, figures):
    values = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
    visualize(values, plot_type="heatmap")
    shown = figures[0]["images"][0]
    assert shown.shape == expected
    assert np.nansum(np.ma.filled(figures[0]["images"][0], np.nan)) == pytest.approx(values.sum().item())


def test_a_heatmap_takes_values_that_are_not_finite():
    opened(visualize(torch.tensor([[1.0, -torch.inf], [torch.nan, 2.0]]), plot_type="heatmap"))


def normal(*shape):
    return np.random.default_rng(3).random(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 6), (5, 6)),
        ((1, 5, 6), (5, 6)),
        ((3, 5, 6), (5, 6, 3)),
        ((4, 5, 6), (5, 6, 4)),
        ((5, 6, 3), (5, 6, 3)),
        ((1, 3, 5, 6), (5, 6, 3)),
        ((7, 5, 6), (17, 20)),
        ((1, 7, 5, 6), (17, 20)),
        ((5, 3, 8, 9), (17, 29, 3)),
        ((2, 7, 5, 6), (5, 13)),
    ],
)
def test_an_image_is_found_in_its_axes(shape, expected):
    assert picture(normal(*shape)).shape == expected


def test_a_batch_is_a_grid_with_gaps_of_one_black_pixel():
    batch = normal(3, 1, 4, 5) / 2 + 0.5
    shown = picture(batch)
    assert np.array_equal(shown[:4, :5], batch[0, 0])
    assert np.array_equal(shown[:4, 6:], batch[1, 0])
    assert np.array_equal(shown[5:, :5], batch[2, 0])
    assert not shown[4].any()
    assert not shown[:, 5].any()
    assert not shown[5:, 6:].any()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0.25, 0.5]]), [[0.25, 0.5]]),
        (np.array([[-1.0, 1.0, 0.0]]), [[0, 1, 0.5]]),
        (np.array([[0, 255]], dtype=np.uint8), [[0, 1]]),
        (np.array([[1, 2]], dtype=np.uint8), [[1 / 255, 2 / 255]]),
        (np.array([[False, True]]), [[0, 1]]),
        (np.array([[0, 1, 2]]), [[0, 0.5, 1]]),
        (np.array([[7.0, 7.0]]), [[0, 0]]),
        (np.array([[np.nan, np.inf, 0.5]]), [[0, 0, 0.5]]),
        (np.array([[np.nan]]), [[0]]),
    ],
)
def test_values_of_an_image_come_to_lie_between_0_and_1(values, expected):
    assert np.allclose(picture(values), expected)


@pytest.mark.parametrize(
    ("data", "params", "message"),
    [
        (None, {}, "data needs numbers to draw; it got NoneType"),
        ("text", {}, "it got str"),
        ({"loss": 1.0}, {}, "it got dict"),
        ([[1, 2], [3]], {}, "data needs lists of one length"),
        ([torch.zeros(2), torch.zeros(3)], {}, r"data needs tensors of one shape; it got \(2,\), \(3,\)"),
        (torch.zeros(2, dtype=torch.complex64), {}, "needs real numbers"),
        (["a", "b"], {}, "needs real numbers"),
        (torch.zeros(0, 3), {}, r"data has nothing to draw; its shape is \(0, 3\)"),
        (torch.tensor([torch.nan]), {"plot_type": "histogram"}, "no finite value"),
        (torch.zeros(3), {"plot_type": "image"}, r"data needs the shape .* it got \(3,\)"),
        (torch.zeros(1, 1, 1, 1, 1), {"plot_type": "image"}, "data needs the shape"),
    ],
)
def test_what_cannot_be_drawn_is_named(data, params, message):
    with pytest.raises(ValueError, match=f"Visualize: .*{message}"):
        visualize(data, **params)


def test_arrays_of_half_precision_keep_their_values():
    assert to_array(torch.tensor([0.5], dtype=torch.float16)).dtype == np.float32
    assert to_array(torch.tensor([True])).dtype == np.bool_


POINTS = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0], [2.0, 2.0]])


def test_points_without_labels(figures):
    image = opened(execute(ScatterPlot2D, {"points": POINTS}, title="t")["image"])
    assert image.size == (600, 600)
    assert np.array_equal(figures[0]["dots"][0], POINTS.numpy())
    assert figures[0]["legend"] == []


def test_points_are_grouped_by_class_in_order(figures):
    labels = ["_b", 10, 2.0, "_b"]
    execute(ScatterPlot2D, {"points": POINTS, "labels": labels})
    assert figures[0]["legend"] == ["2", "10", "_b"]
    assert [dots.tolist() for dots in figures[0]["dots"]] == [[[3, 1]], [[1, 2]], [[0, 0], [2, 2]]]


def test_more_classes_than_colors():
    many = torch.arange(24.0).reshape(12, 2)
    opened(execute(ScatterPlot2D, {"points": many, "labels": torch.arange(12)})["image"])


def test_labels_of_one_value_read_alike():
    assert label_texts(torch.tensor([1.0, 2.5])) == ["1", "2.5"]
    assert label_texts([1, "1", 1.0, torch.tensor(1), np.int64(1)]) == ["1"] * 5
    assert classes_of(["b", "10", "9", "a", "10"]) == ["9", "10", "a", "b"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"points": torch.zeros(3, 3)}, r"points needs the shape \(N, 2\).*it got \(3, 3\)"),
        ({"points": torch.zeros(0, 2)}, "with N at least 1"),
        ({"points": torch.tensor([[torch.nan, 1.0]])}, "points holds NaN"),
        ({"points": POINTS, "labels": ["a"]}, "labels has 1 labels for 4 points"),
        ({"points": POINTS, "labels": "abcd"}, "labels needs a list of labels; it got str"),
        ({}, "points needs numbers to draw"),
    ],
)
def test_a_scatter_that_cannot_be_drawn_says_why(inputs, message):
    with pytest.raises(ValueError, match=f"ScatterPlot2D: .*{message}"):
        execute(ScatterPlot2D, inputs)


class LeftOrRight:
    support_vectors = torch.tensor([[1.0, 2.0], [3.0, 1.0]])

    def predict(self, array):
        assert array.dtype == np.float32
        self.asked = array
        return ["left" if x < 1.5 else "right" for x, _ in array]


def boundary(model, labels=("left", "left", "right", "right"), **params):
    inputs = {"model": model, "x_train": POINTS, "y_train": list(labels)}
    return execute(DecisionBoundary, inputs, **params)["image"]


def test_the_plane_is_colored_by_the_prediction(figures):
    model = LeftOrRight()
    assert opened(boundary(model, grid_steps=20)).size == (600, 600)
    regions = figures[0]["images"][0]
    assert regions.shape == (20, 20, 4)
    # x from -0.65 to 3.65; columns below 1.5 are of the first class.
    xs = np.linspace(-0.65, 3.65, 20)
    for column, x in enumerate(xs):
        red_green_blue = regions[:, column, :3]
        expected = drawing.to_rgba(drawing.color(0 if x < 1.5 else 1))[:3]
        assert np.allclose(red_green_blue, expected)
    assert model.asked.shape == (400, 2)
    assert np.allclose(model.asked.min(axis=0), [-0.65, -0.6])
    assert np.allclose(model.asked.max(axis=0), [3.65, 2.6])
    assert figures[0]["legend"] == ["left", "right"]
    assert len(figures[0]["dots"]) == 2


def test_support_vectors_are_ringed_when_asked_for(figures):
    boundary(LeftOrRight(), grid_steps=20, show_support_vectors=True)
    assert figures[0]["dots"][-1].tolist() == [[1, 2], [3, 1]]


def test_a_model_without_support_vectors_has_no_rings(figures):
    class Constant:
        def predict(self, array):
            return ["left"] * len(array)

    boundary(Constant(), grid_steps=20, show_support_vectors=True)
    assert len(figures[0]["dots"]) == 2


def test_an_estimator_of_scikit_learn_works(figures):
    fitted = SVC(kernel="linear").fit(POINTS.numpy(), [0, 0, 1, 1])
    boundary(fitted, labels=[0.0, 0.0, 1.0, 1.0], grid_steps=20, show_support_vectors=True)
    assert np.allclose(figures[0]["dots"][-1], fitted.support_vectors_)
    shown = {tuple(color) for color in figures[0]["images"][0].reshape(-1, 4).round(3)}
    assert len(shown) == 2


def test_a_class_that_only_the_model_knows_has_a_color_of_its_own(figures):
    boundary(LeftOrRight(), labels=["left"] * 4, grid_steps=20)
    shown = figures[0]["images"][0].reshape(-1, 4)
    assert len(np.unique(shown, axis=0)) == 2
    assert figures[0]["legend"] == ["left"]


class Short:
    def predict(self, array):
        return ["a"]


@pytest.mark.parametrize(
    ("model", "labels", "message"),
    [
        (torch.nn.Linear(2, 2), ["a"] * 4, "model needs a fitted classifier with predict; it got Linear"),
        (None, ["a"] * 4, "it got nothing"),
        (LeftOrRight(), ["a"], "y_train has 1 labels for 4 points"),
        (Short(), ["a"] * 4, "model predicted 1 labels for 400 points"),
    ],
)
def test_a_boundary_that_cannot_be_drawn_says_why(model, labels, message):
    with pytest.raises(ValueError, match=f"DecisionBoundary: .*{message}"):
        boundary(model, labels, grid_steps=20)


def test_figures_are_freed_also_after_a_failure(monkeypatch):
    made = []

    def figure(**options):
        new = Figure(**options)
        made.append(weakref.ref(new))
        return new

    monkeypatch.setattr(drawing, "Figure", figure)
    visualize(torch.zeros(2))
    with pytest.raises(ValueError, match="no finite value"):
        visualize(torch.tensor([torch.nan]), plot_type="histogram")
    gc.collect()
    assert [reference() for reference in made] == [None, None]


def test_nothing_imports_pyplot():
    code = (
        "import sys, torch; from codefyui_nodes_torch.utility.visualize import Visualize;"
        "from codefyui_core.testing.node_context import execute;"
        "print('matplotlib' in sys.modules);"
        "execute(Visualize, {'data': torch.zeros(2)}); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_drawing_in_several_threads_at_once():
    expected = visualize(torch.arange(5.0))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(visualize(torch.arange(5.0)))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [expected] * 3
