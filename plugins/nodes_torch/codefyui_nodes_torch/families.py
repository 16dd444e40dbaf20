"""The modules that hold node classes, and how the classes are found in them."""

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module

from codefyui_core.plugin import CatalogProblem, Node

FAMILIES: tuple[str, ...] = (
    "classical.accuracy",
    "classical.linear",
    "classical.neighbors",
    "classical.perceptron",
    "classical.support_vectors",
    "classical.trees",
    "cnn.activation",
    "cnn.batch_norm",
    "cnn.convolution",
    "cnn.dropout",
    "cnn.kernel",
    "cnn.pooling",
    "data.batch",
    "data.csv_reader",
    "data.dataset",
    "data.loader",
    "data.normalize",
    "data.selectors",
    "data.split",
    "data.synthetic",
    "data.tensor_input",
    "data.transform",
    "flow.reduce",
    "io.checkpoint_loader",
    "io.checkpoint_saver",
    "io.file_reader",
    "io.image_reader",
    "io.image_writer",
    "io.inference",
    "io.model_loader",
    "io.model_saver",
    "normalization.layers",
    "tensor.arithmetic",
    "tensor.create",
    "tensor.reduction",
    "tensor.shape",
    "training.backward_once",
    "training.evaluate",
    "training.loss",
    "training.optimizer",
    "training.scheduler",
    "training.sequential",
    "training.training_loop",
    "utility.decision_boundary",
    "utility.layers",
    "utility.scatter_plot",
    "utility.shape",
    "utility.visualize",
)
"""Below this package, in alphabetical order; one a line."""


def module_names() -> tuple[str, ...]:
    """The full names of the modules."""
    return tuple(f"{__package__}.{family}" for family in FAMILIES)


def classes(names: Iterable[str]) -> Iterator[type[Node] | CatalogProblem]:
    """The node classes of modules, which are imported one by one.

    One that doesn't import, because a library is missing or broken, becomes a problem and costs its own
    nodes only.
    """
    for name in names:
        try:
            module = import_module(name)
        except Exception as error:
            yield CatalogProblem(source=name, message=f"{type(error).__name__}: {error}")
            continue
        yield from (value for value in vars(module).values() if _is_node_of(name, value))


def _is_node_of(module: str, value: object) -> bool:
    """A node type is defined in the module itself and has a ``type`` of its own; bases have none."""
    return (
        inspect.isclass(value)
        and issubclass(value, Node)
        and value.__module__ == module
        and "type" in vars(value)
    )
