"""Class labels as texts that compare alike, whichever kind of value they came as."""

from collections.abc import Iterable
from typing import Any


def label_texts(labels: Any) -> list[str]:
    """One text a label; ``1``, ``1.0`` and a one-element tensor of either read alike."""
    listed: Iterable[Any] = labels.tolist() if hasattr(labels, "tolist") else labels
    return [_text(label) for label in listed]


def classes_of(texts: Iterable[str]) -> list[str]:
    """Each class once: numbers by value, before other texts in alphabetical order."""
    return sorted(set(texts), key=_order)


def _text(label: Any) -> str:
    value = label.item() if hasattr(label, "item") else label
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _order(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
