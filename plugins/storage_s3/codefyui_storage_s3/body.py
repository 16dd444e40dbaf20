"""Bodies of requests and answers that tell how far they are."""

import io

from codefyui_core.plugin import Progress, TransferStopped


class Unwatched(Progress):
    """Nobody looks, and nobody stops it."""

    def advance(self, n_bytes: int) -> None:
        return


class Sending(io.BytesIO):
    """Bytes whose reading counts once ``begin`` was called. ``stopped`` is what progress raised, which the HTTP library
    wraps into an error of its own.
    """

    def __init__(self, data: bytes, progress: Progress) -> None:
        super().__init__(data)
        self._size = len(data)
        self._progress = progress
        self._counts = False
        self.stopped: TransferStopped | None = None

    def __len__(self) -> int:
        return self._size

    def begin(self) -> None:
        self._counts = True

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if self._counts and data:
            try:
                self._progress.advance(len(data))
            except TransferStopped as error:
                self.stopped = error
                raise
        return data
