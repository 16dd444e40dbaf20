"""What a run leaves in a bucket: its objects, and uploads that nobody completes."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from codefyui_core.plugin import Busy, StorageProblem, StoredObject

from .client import BucketClient
from .models import StoredIn, run_folder
from .problems import Missing, UploadGone
from .threads import each
from .unfinished import Unfinished, Upload

AT_ONCE = 16

ClientFor = Callable[[Upload], BucketClient]


async def remove_keys(client: BucketClient, keys: Iterable[str]) -> None:
    """One request each: a request for many needs a checksum of a kind that some stores refuse."""

    async def remove(key: str) -> None:
        await client.call("delete_object", key)

    await each((remove(key) for key in keys), AT_ONCE)


async def keys_of_run(
    client: BucketClient, prefix: str, run_id: str, keep_kinds: Collection[str]
) -> Sequence[str]:
    """Every object of the run's folder but those of kinds that stay."""
    folder = run_folder(prefix, run_id)
    kept = tuple(f"{folder}{kind}/" for kind in keep_kinds)
    found: list[str] = []
    more: dict[str, str] = {}
    while True:
        page = await client.call("list_objects_v2", Prefix=folder, **more)
        found += [one["Key"] for one in page.get("Contents", ()) if not one["Key"].startswith(kept)]
        if not page.get("IsTruncated"):
            return found
        more = {"ContinuationToken": page["NextContinuationToken"]}


def places_of(stored: Iterable[StoredObject]) -> Sequence[StoredIn]:
    """The buckets and prefixes that the rows name, once each. Files that stayed on their worker name none."""
    found = [StoredIn.model_validate(one.data) for one in stored if one.data]
    return sorted(set(found), key=lambda place: (place.bucket, place.prefix))


async def abort(
    unfinished: Unfinished,
    owner: str,
    uploads: Iterable[Upload],
    client_for: ClientFor,
    log: logging.Logger,
) -> None:
    """End recorded uploads of an owner. One that the store refuses to end is logged, and left to its rules.

    Raises: Busy; what wasn't reached stays recorded.
    """
    for upload in uploads:
        try:
            await client_for(upload).call("abort_multipart_upload", upload.key, UploadId=upload.upload_id)
        except (Missing, UploadGone):
            pass  # completed, or aborted before
        except Busy:
            raise
        except StorageProblem as error:
            log.warning("an unfinished upload stays in the bucket: %s", error)
        await unfinished.done(owner, upload.key, upload.upload_id)
