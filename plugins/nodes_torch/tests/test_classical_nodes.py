"""The classical nodes give scikit-learn's numbers, from tensors of any sort."""

import math

import numpy as np
import pytest
import torch
from sklearn import ensemble, linear_model, neighbors, neural_network, svm, tree

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.classical.accuracy import Accuracy
from codefyui_nodes_torch.classical.linear import LinearRegression, LogisticRegression
from codefyui_nodes_torch.classical.neighbors import KNN
from codefyui_nodes_torch.classical.perceptron import MLPClassifier
from codefyui_nodes_torch.classical.support_vectors import SVMClassifier
from codefyui_nodes_torch.classical.trees import DecisionTreeClassifier, RandomForestClassifier

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(60, 3)).astype(np.float32)
Y = [str(kind) for kind in (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 0.5)]
QUERY = RANDOM.normal(size=(20, 3)).astype(np.float32)
INPUTS = {"x_train": torch.tensor(X, requires_grad=True), "y_train": Y, "x_query": torch.tensor(QUERY)}
CLASSIFIERS = [
    (KNN, {"n_neighbors": 4, "weights": "distance"}, neighbors.KNeighborsClassifier(4, weights="distance")),
    (KNN, {"n_neighbors": 999, "metric": "cosine"}, neighbors.KNeighborsClassifier(60, metric="cosine")),
    (DecisionTreeClassifier, {"max_depth": 2}, tree.DecisionTreeClassifier(max_depth=2, random_state=42)),
    (
        DecisionTreeClassifier,
        {"max_depth": 0, "criterion": "entropy"},
        tree.DecisionTreeClassifier(criterion="entropy", random_state=42),
    ),
    (
        RandomForestClassifier,
        {"n_estimators": 7, "seed": 5},
        ensemble.RandomForestClassifier(7, random_state=5),
    ),
    (LogisticRegression, {"C": 0.5}, linear_model.LogisticRegression(C=0.5, max_iter=200)),
    (LogisticRegression, {"penalty": "none"}, linear_model.LogisticRegression(C=math.inf, max_iter=200)),
    (
        LogisticRegression,
        {"penalty": "l1", "max_iter": 3000},
        linear_model.LogisticRegression(l1_ratio=1.0, solver="saga", max_iter=3000, random_state=0),
    ),
    (SVMClassifier, {"C": 2.0, "gamma": "0.3"}, svm.SVC(C=2.0, gamma=0.3)),
    (SVMClassifier, {"kernel": "poly"}, svm.SVC(kernel="poly")),
    (
        MLPClassifier,
        {"hidden_sizes": "5, 4,", "max_iter": 500, "seed": 1, "activation": "tanh"},
        neural_network.MLPClassifier(
            (5, 4), activation="tanh", max_iter=500, learning_rate_init=0.01, random_state=1
        ),
    ),
]


@pytest.mark.parametrize(("node", "params", "reference"), CLASSIFIERS)
def test_a_classifier_is_scikit_learns(node, params, reference, tmp_path):
    out = execute(node, INPUTS, root=tmp_path, **params)
    reference.fit(X, np.array(Y))
    assert out["predictions"] == reference.predict(QUERY).tolist()
    assert out["classes"] == ["0", "1", "2"]
    if "probabilities" in out:
        assert np.allclose(out["probabilities"].numpy(), reference.predict_proba(QUERY), atol=1e-6)
        assert out["probabilities"].dtype == torch.float32
    assert set(out) == {port.name for port in node.outputs}


def test_the_special_outputs(tmp_path):
    grown = execute(DecisionTreeClassifier, INPUTS, root=tmp_path, max_depth=2)
    reference = tree.DecisionTreeClassifier(max_depth=2, random_state=42).fit(X, Y)
    assert grown["tree_text"] == tree.export_text(reference)
    assert grown["feature_importances"].sum().item() == pytest.approx(1)
    vectors = execute(SVMClassifier, INPUTS, root=tmp_path)["support_vectors"]
    assert np.allclose(vectors.numpy(), svm.SVC().fit(X, Y).support_vectors_)
    assert execute(LogisticRegression, INPUTS, root=tmp_path)["coef"].shape == (3, 3)
    two = INPUTS | {"y_train": ["a", "b"] * 30}
    assert execute(LogisticRegression, two, root=tmp_path)["coef"].shape == (1, 3)


def test_numbers_as_labels_are_sorted_as_texts_by_every_classifier(tmp_path):
    labels = [2, 10] * 30
    for node in (KNN, DecisionTreeClassifier, LogisticRegression, SVMClassifier):
        for given in (labels, torch.tensor(labels)):
            out = execute(node, INPUTS | {"y_train": given}, root=tmp_path)
            assert out["classes"] == ["10", "2"]


def test_what_does_not_converge_is_told_in_the_log(tmp_path):
    context = RecordingContext(root=tmp_path)
    execute(MLPClassifier, INPUTS, context, max_iter=2)
    execute(LogisticRegression, INPUTS, context, max_iter=1, penalty="l1")
    assert len(context.lines) == 2
    assert context.lines[0].startswith("MLPClassifier: Stochastic Optimizer: Maximum iterations (2)")
    assert context.lines[1].startswith("LogisticRegression: The max_iter was reached")


@pytest.mark.parametrize(
    ("node", "changed", "params", "part"),
    [
        (KNN, {"y_train": ["a"]}, {}, "60 rows and y_train 1"),
        (KNN, {"x_query": torch.zeros(3)}, {}, "x_query needs the shape"),
        (KNN, {"x_query": torch.zeros(3, 9)}, {}, "KNN: X has 9 features"),
        (LogisticRegression, {"y_train": ["a"] * 60}, {}, "LogisticRegression: .*classes"),
        (LogisticRegression, {}, {"C": 0.0}, "C must be above 0"),
        (SVMClassifier, {}, {"gamma": "wide"}, "gamma is scale, auto or a number"),
        (MLPClassifier, {}, {"hidden_sizes": ","}, "hidden_sizes is empty"),
        (MLPClassifier, {}, {"hidden_sizes": "4,0"}, "1 or more each"),
        (DecisionTreeClassifier, {"x_train": torch.full((60, 3), math.inf)}, {}, "infinity"),
    ],
)
def test_what_can_not_be_learned_is_explained(node, changed, params, part, tmp_path):
    with pytest.raises(CodefyError, match=part):
        execute(node, INPUTS | changed, root=tmp_path, **params)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("targets", [1, 2])
def test_least_squares_is_scikit_learns(targets, intercept, tmp_path):
    goal = X @ np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]], dtype=np.float32) + 2
    goal = goal if targets == 2 else goal[:, 0]
    out = execute(
        LinearRegression, INPUTS | {"y_train": torch.tensor(goal)}, root=tmp_path, fit_intercept=intercept
    )
    reference = linear_model.LinearRegression(fit_intercept=intercept).fit(X, goal)
    assert np.allclose(out["predictions"].numpy(), reference.predict(QUERY), atol=1e-5)
    assert np.allclose(out["coef"].numpy(), reference.coef_, atol=1e-5)
    assert np.allclose(np.asarray(out["intercept"]), reference.intercept_, atol=1e-5)
    if targets == 1:
        assert isinstance(out["intercept"], float)


@pytest.mark.parametrize(
    ("predictions", "labels", "correct"),
    [
        (["a", "b"], ["a", "c"], 1),
        (["1.0", "2", "3.5"], [1, 2.0, 3], 2),
        (torch.tensor([1.0, 0.0]), torch.tensor([1, 1]), 1),
        (["01"], ["1"], 1),
        (["nan"], ["nan"], 1),
        ([True], ["True"], 1),
        ([], [], 0),
    ],
)
def test_accuracy_compares_numbers_as_numbers(predictions, labels, correct, tmp_path):
    out = execute(Accuracy, {"predictions": predictions, "labels": labels}, root=tmp_path)
    total = len(labels)
    assert out == {"accuracy": correct / total if total else 0.0, "correct": correct, "total": total}


def test_accuracy_needs_as_many_labels(tmp_path):
    with pytest.raises(CodefyError, match="2 predictions and 1 labels"):
        execute(Accuracy, {"predictions": [1, 2], "labels": [1]}, root=tmp_path)
