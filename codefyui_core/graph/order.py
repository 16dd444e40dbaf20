"""Order in graphs of any size: levels, cycles and what is reachable, without recursion."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def levels(
    nodes: Collection[str], edges: Iterable[tuple[str, str]]
) -> tuple[tuple[tuple[str, ...], ...], list[str]]:
    """Kahn's algorithm by levels, each in the order of ``nodes``; and a cycle, if there is one.

    Edges with an end outside ``nodes`` are left out. With a cycle the levels hold what comes before it.
    The cycle is given closed: its first node is its last.
    """
    place = {node: index for index, node in enumerate(nodes)}
    after: dict[str, set[str]] = {node: set() for node in nodes}
    before: dict[str, set[str]] = {node: set() for node in nodes}
    for source, target in edges:
        if source in place and target in place:
            after[source].add(target)
            before[target].add(source)
    waiting = {node: len(sources) for node, sources in before.items()}
    ready = [node for node in nodes if not waiting[node]]
    found: list[tuple[str, ...]] = []
    while ready:
        found.append(tuple(ready))
        following = []
        for node in ready:
            del waiting[node]
            for target in after[node]:
                waiting[target] -= 1
                if not waiting[target]:
                    following.append(target)
        ready = sorted(following, key=place.__getitem__)
    return tuple(found), _cycle(waiting, before, place)


def _cycle(waiting: Mapping[str, int], before: Mapping[str, set[str]], place: Mapping[str, int]) -> list[str]:
    """Walk backwards among the nodes that never got ready: each has a source among them."""
    if not waiting:
        return []
    node = next(iter(waiting))
    seen: dict[str, int] = {}
    path: list[str] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = min((source for source in before[node] if source in waiting), key=place.__getitem__)
    around = path[seen[node] :][::-1]
    first = min(range(len(around)), key=lambda index: place[around[index]])
    around = around[first:] + around[:first]
    return [*around, around[0]]


def reach(starts: Iterable[H], following: Mapping[H, Iterable[H]]) -> set[H]:
    """``starts`` and all that follows them."""
    found = set(starts)
    pending = list(found)
    while pending:
        for node in following.get(pending.pop(), ()):
            if node not in found:
                found.add(node)
                pending.append(node)
    return found
