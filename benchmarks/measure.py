"""Figures with their baselines: measured in turns, so that what disturbs the machine disturbs both."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a figure should reach."""

    text: str
    reached: str
    """The figure that is compared, in words."""
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure, its samples, and those of its baseline; the n-th of both were taken one after the other."""

    benchmark: str
    figure: str
    unit: str
    samples: Sequence[float]
    baseline: str
    baseline_samples: Sequence[float]
    aims: Sequence[Aim] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def baseline_median(self) -> float:
        return statistics.median(self.baseline_samples)

    @property
    def ratio(self) -> float:
        """The median of the figure over its baseline, turn by turn."""
        return statistics.median(ratios(self.samples, self.baseline_samples))

    def aiming(self, *aims: Aim) -> Self:
        """The same, with what it should reach; nothing is nothing."""
        return replace(self, aims=aims)

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.benchmark,
            "figure": self.figure,
            "unit": self.unit,
            "median": self.median,
            "samples": list(self.samples),
            "baseline": self.baseline,
            "baseline_median": self.baseline_median,
            "baseline_samples": list(self.baseline_samples),
            "ratio": self.ratio,
            "aims": [{"aim": aim.text, "reached": aim.reached, "met": aim.met} for aim in self.aims],
        }


def ratios(samples: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Turn by turn."""
    return [one / other for one, other in zip(samples, baseline, strict=True)]


def spread(samples: Sequence[float]) -> float:
    """Half of the range between the quartiles, as a part of the median; of the whole range below four samples."""
    middle = statistics.median(samples)
    if len(samples) < 4:
        low, high = min(samples), max(samples)
    else:
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle else 0.0


def in_turns(
    turns: int, measure: Callable[[], Sample], baseline: Callable[[], Sample]
) -> tuple[list[Sample], list[Sample]]:
    """Samples of both, each turn in the other order than the one before."""
    both: tuple[list[Sample], list[Sample]] = ([], [])
    for turn in range(turns):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            both[which].append((measure, baseline)[which]())
    return both
