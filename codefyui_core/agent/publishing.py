"""What a storage session is given to publish with, where the workspace is shared and nothing is carried."""

from codefyui_core.plugin.values import JsonObject


class NoNotes:
    """Nothing is half done when a file is published in place, so nothing is to be remembered."""

    def read(self) -> JsonObject:
        return {}

    async def write(self, notes: JsonObject) -> None:
        return None


class Quiet:
    """No progress is shown for files that stay where they are."""

    def advance(self, n_bytes: int) -> None:
        return None
