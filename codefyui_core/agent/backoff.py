"""How long to wait before dialling again. Pure, but for the dice."""

import random
from dataclasses import dataclass, field

FIRST_S = 1.0
MOST_S = 30.0
RESET_AFTER_S = 60.0
"""Online for so long, the next failure is the first again."""


@dataclass(slots=True)
class Backoff:
    """Doubling from one second, with full jitter, at most 30 s or a quarter of the grace."""

    dice: random.Random = field(default_factory=random.SystemRandom)
    failures: int = 0

    def next_s(self, grace_s: float) -> float:
        most = max(FIRST_S, min(MOST_S, grace_s / 4))
        bound = min(most, FIRST_S * 2 ** min(self.failures, 16))
        self.failures += 1
        return self.dice.uniform(0, bound)

    def soon_s(self) -> float:
        """After a planned restart: between one and two seconds."""
        return self.dice.uniform(1.0, 2.0)

    def reset(self) -> None:
        self.failures = 0
