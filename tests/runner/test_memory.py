"""What is free on cards, as their driver tells it."""

import sys
from types import SimpleNamespace

import pytest

from codefyui_core.runner.memory import Card, cards, free_memory
from codefyui_core.wire.messages import DeviceInfo


class DriverError(Exception):
    pass


def nvml(found):
    """The library, with cards that a test describes: (uuid, total, free); None for one that doesn't answer."""
    opened = []

    def handle(index):
        if found[index] is None:
            raise DriverError
        return found[index]

    return SimpleNamespace(
        NVMLError=DriverError,
        nvmlInit=lambda: opened.append(1),
        nvmlShutdown=opened.pop,
        nvmlDeviceGetCount=lambda: len(found),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetMemoryInfo=lambda card: SimpleNamespace(total=card[1], free=card[2]),
        nvmlDeviceGetName=lambda card: b"A card",
        nvmlDeviceGetUUID=lambda card: card[0],
        opened=opened,
    )


@pytest.fixture
def driver(monkeypatch):
    """Takes the place of the library."""

    def install(*found):
        made = nvml(found)
        monkeypatch.setitem(sys.modules, "pynvml", made)
        return made

    return install


@pytest.mark.spec("limits/memory-admission-opt-in")
def test_free_memory_is_the_cards_own_count_whoever_took_the_rest(driver):
    made = driver(("GPU-b", 80, 30), ("GPU-a", 80, 70))
    offered = [DeviceInfo(device="cuda:0", uuid="GPU-a"), DeviceInfo(device="cuda:1", uuid="GPU-b")]
    assert free_memory(offered) == {"cuda:0": 70, "cuda:1": 30}
    assert made.opened == []


def test_a_card_that_does_not_answer_is_left_out(driver):
    driver(None, ("GPU-b", 80, 30))
    assert cards() == (Card(name="A card", uuid="GPU-b", total_bytes=80, free_bytes=30),)
    assert free_memory([DeviceInfo(device="cuda:0", uuid="GPU-a")]) == {}


def test_without_a_driver_nothing_is_told(driver, monkeypatch):
    def refuse():
        raise DriverError

    monkeypatch.setattr(driver(), "nvmlInit", refuse)
    assert cards() == ()
