"""Multipart uploads that were begun, by the ids that were told: a listing by prefix leaves some out on MinIO."""

import hashlib
from collections.abc import Sequence

from codefyui_core.plugin import Documents, Model, Refused

from .models import Bucket, UploadBegun

ROOM = "upload/"
INPUTS = "inputs/"
"""The owner of uploads of the control plane itself."""
LIMIT = 1000
"""Open uploads of one attempt: a worker fills no database."""


class Upload(Model):
    """One upload, and where."""

    bucket: Bucket
    key: str
    upload_id: str


def owner_of(run_id: str, attempt: int | None = None) -> str:
    """Of one attempt; without one, of all of a run."""
    return f"{run_id}/" if attempt is None else f"{run_id}/{attempt}/"


class Unfinished:
    """Kept in the database until they are completed or aborted."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def add(self, owner: str, bucket: Bucket, begun: UploadBegun) -> None:
        """Raises: Refused over the limit."""
        place = self._place(owner, begun.key, begun.upload_id)
        known = await self._documents.keys(f"{ROOM}{owner}")
        if place in known:
            return
        if len(known) >= LIMIT:
            raise Refused(f"{owner} has {LIMIT} uploads open; end some of them first")
        upload = Upload(bucket=bucket, key=begun.key, upload_id=begun.upload_id)
        await self._documents.put(place, upload.model_dump(mode="json"))

    async def of(self, owner: str) -> Sequence[Upload]:
        found = [await self._documents.get(place) for place in await self._documents.keys(f"{ROOM}{owner}")]
        return [Upload.model_validate(document) for document in found if document is not None]

    async def done(self, owner: str, key: str, upload_id: str) -> None:
        """It was completed or aborted."""
        await self._documents.delete(self._place(owner, key, upload_id))

    async def owners(self) -> Sequence[tuple[str, int]]:
        """Run and attempt of each upload that runs left, once each."""
        places = [place.removeprefix(ROOM).split("/") for place in await self._documents.keys(ROOM)]
        return sorted({(parts[0], int(parts[1])) for parts in places if len(parts) == 3})

    @staticmethod
    def _place(owner: str, key: str, upload_id: str) -> str:
        digest = hashlib.sha256(f"{key}\n{upload_id}".encode()).hexdigest()
        return f"{ROOM}{owner}{digest[:32]}"
