"""What a schedule found."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Findings:
    """Counts of one schedule, and every violation in words."""

    violations: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    orphans: int = 0
    emitted: int = 0
    stored: int = 0
    events: int = 0
    unsent: int = 0
    """Counts that killed processes had written down and never got out; nobody was told of them."""
    written: int = 0
    """Files that were whole when their run noted it."""
    delivered: Counter[str] = field(default_factory=Counter)
    """Backend -> files that are listed as stored; also those of runs that were ended before they noted them."""
    left: int = 0
    """Files that are listed as left on their worker."""
    replaced: int = 0
    """Files that are listed with what the run had put in their place since, before its agent came to look."""
