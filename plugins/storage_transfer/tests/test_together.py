"""What waits goes together."""

import asyncio
from collections.abc import Sequence

import pytest

from codefyui_storage_transfer.together import Together


class Carrier:
    """Keeps what each load held; holds loads back until it is let go."""

    def __init__(self) -> None:
        self.loads: list[list[int]] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None
        self.cancelled = 0

    async def carry(self, items: Sequence[int]) -> Sequence[str | Exception]:
        self.loads.append(list(items))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return [ValueError(f"{item}") if item < 0 else f"<{item}>" for item in items]

    def together(
        self, *, at_once: int = 1, most_items: int = 10, most_bytes: int = 100
    ) -> Together[int, str]:
        return Together(self.carry, at_once=at_once, most_items=most_items, most_bytes=lambda: most_bytes)


async def begun(*tasks: object) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def ask(together: Together[int, str], *items: int, n_bytes: int = 1) -> list["asyncio.Task[str]"]:
    return [asyncio.create_task(together.one(item, n_bytes)) for item in items]


async def test_what_comes_while_a_load_is_under_way_is_the_next_load() -> None:
    carrier = Carrier()
    asked = ask(carrier.together(), 1, 2, 3)
    await begun()
    assert carrier.loads == [[1]]
    carrier.go.set()
    assert await asyncio.gather(*asked) == ["<1>", "<2>", "<3>"]
    assert carrier.loads == [[1], [2, 3]]


async def test_a_load_has_so_many_items_and_bytes_at_most() -> None:
    carrier = Carrier()
    carrier.go.set()
    together = carrier.together(most_items=3, most_bytes=20)
    await asyncio.gather(*ask(together, *range(7)), *ask(together, 8, 9, n_bytes=15))
    assert carrier.loads == [[0], [1, 2, 3], [4, 5, 6], [8], [9]]


async def test_an_item_that_is_larger_than_a_load_goes_alone() -> None:
    carrier = Carrier()
    carrier.go.set()
    assert await carrier.together(most_bytes=10).one(5, 1000) == "<5>"


async def test_so_many_loads_are_under_way_at_once() -> None:
    carrier = Carrier()
    asked = ask(carrier.together(at_once=2, most_items=4), 1, 2, 3, 4, 5)
    await begun()
    assert carrier.loads == [[1], [2, 3]]
    carrier.go.set()
    await asyncio.gather(*asked)
    assert carrier.loads == [[1], [2, 3], [4, 5]]


async def test_a_load_goes_beside_another_only_once_it_is_half_full() -> None:
    carrier = Carrier()
    together = carrier.together(at_once=2, most_items=12, most_bytes=20)
    asked = ask(together, 1, 2, 3)
    await begun()
    assert carrier.loads == [[1]]
    asked += ask(together, 4, n_bytes=8)
    await begun()
    assert carrier.loads == [[1], [2, 3, 4]]
    asked += ask(together, 5)
    carrier.go.set()
    await asyncio.gather(*asked)
    assert carrier.loads == [[1], [2, 3, 4], [5]]


async def test_an_item_that_fails_fails_alone() -> None:
    carrier = Carrier()
    carrier.go.set()
    one, two, three = await asyncio.gather(*ask(carrier.together(), 1, -2, 3), return_exceptions=True)
    assert (one, three) == ("<1>", "<3>")
    assert isinstance(two, ValueError)


async def test_a_load_that_fails_fails_all_of_its_items_and_no_other() -> None:
    carrier = Carrier()
    carrier.error = OSError("the line broke")
    together = carrier.together()
    carrier.go.set()
    assert all(
        isinstance(one, OSError) for one in await asyncio.gather(*ask(together, 1, 2), return_exceptions=True)
    )
    carrier.error = None
    assert await together.one(3, 1) == "<3>"


async def test_who_leaves_leaves_the_load_to_the_others() -> None:
    carrier = Carrier()
    together = carrier.together()
    asked = ask(together, 1, 2, 3)
    await begun()
    asked[1].cancel()
    carrier.go.set()
    assert (await asyncio.gather(*asked, return_exceptions=True))[2] == "<3>"
    assert carrier.loads == [[1], [3]]
    assert carrier.cancelled == 0


async def test_a_load_that_nobody_waits_for_ends() -> None:
    carrier = Carrier()
    together = carrier.together()
    (asked,) = ask(together, 1)
    await begun()
    asked.cancel()
    await begun()
    assert carrier.cancelled == 1
    carrier.go.set()
    assert await together.one(2, 1) == "<2>"


async def test_closing_ends_what_is_under_way_and_what_waits() -> None:
    carrier = Carrier()
    together = carrier.together()
    asked = ask(together, 1, 2)
    await begun()
    await together.aclose()
    with pytest.raises(asyncio.CancelledError):
        await asked[0]
    with pytest.raises(asyncio.CancelledError):
        await asked[1]
    assert carrier.cancelled == 1
