"""Free memory of NVIDIA cards by NVML, without torch and without touching a card (NVML API reference)."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from codefyui_core.wire.messages import DeviceInfo


class CardMemory:
    """Asks the driver; knows nothing, quietly, where there is none."""

    def __init__(self, cards: Iterable[DeviceInfo]) -> None:
        self._by_uuid = {_plain(card.uuid): card.device for card in cards if card.uuid}
        self._nvml: Any = None

    def start(self) -> None:
        """Load the driver's library, when there are cards to ask for."""
        if not self._by_uuid or self._nvml is not None:
            return
        with suppress(Exception):  # no driver: free memory stays unknown
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml

    def free_bytes(self) -> Mapping[str, int]:
        """Device -> free bytes, for the cards that answered."""
        if self._nvml is None:
            return {}
        found: dict[str, int] = {}
        for index in range(self._nvml.nvmlDeviceGetCount()):
            with suppress(Exception):  # a card that fell off the bus costs itself
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                device = self._by_uuid.get(_plain(self._nvml.nvmlDeviceGetUUID(handle)))
                if device is not None:
                    found[device] = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).free)
        return found

    def stop(self) -> None:
        """Let go of the library."""
        if self._nvml is not None:
            with suppress(Exception):
                self._nvml.nvmlShutdown()
            self._nvml = None


def _plain(uuid: object) -> str:
    text = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
    return text.removeprefix("GPU-").lower()
