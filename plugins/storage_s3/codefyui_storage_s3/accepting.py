"""What a worker says that it uploaded, against what is in the bucket."""

from codefyui_core.plugin import Refused

from .client import Answer, BucketClient
from .models import S3Receipt
from .problems import Missing
from .removing import remove_keys
from .uploading import MARK


async def whole_at(client: BucketClient, key: str, receipt: S3Receipt) -> str:
    """``key``, if the object there is what was sent.

    Raises: StorageProblem; Refused when it isn't.
    """
    if not _is_what_was_sent(receipt, await client.call("head_object", key)):
        raise Refused(f"{key} in bucket {client.bucket.name} is not what its worker uploaded")
    return key


async def first_whole(client: BucketClient, key: str, receipt: S3Receipt) -> str:
    """Where the output is: under a key that was taken by an earlier try of its own, whose answer was lost, else under
    ``key``. What else bears its mark is removed, as nothing would list it: a second copy, and what a store that was killed
    has of an upload, which can be an empty object.

    Raises: as ``whole_at``.
    """
    own: dict[str, Answer] = {}
    for one in dict.fromkeys((*receipt.taken, key)):
        found = await _found(client, one)
        if found is not None and _bears(found, receipt.mark):
            own[one] = found
    whole = [one for one, found in own.items() if _is_what_was_sent(receipt, found)]
    chosen = whole[0] if whole else await whole_at(client, key, receipt)
    await remove_keys(client, [one for one in own if one != chosen])
    return chosen


async def _found(client: BucketClient, key: str) -> Answer | None:
    try:
        return await client.call("head_object", key)
    except Missing:
        return None


def _bears(found: Answer, mark: str) -> bool:
    return bool(mark) and found.get("Metadata", {}).get(MARK) == mark


def _is_what_was_sent(receipt: S3Receipt, found: Answer) -> bool:
    """Size and hash of a file sent in one piece; the bucket's own mark of one sent in parts, whose hash is known only after
    its last part.
    """
    if receipt.sha256 is None or receipt.size_bytes != found["ContentLength"]:
        return False
    digest = found.get("Metadata", {}).get("sha256")
    if digest is not None:
        return bool(digest == receipt.sha256)
    return bool(receipt.etag) and receipt.etag == found.get("ETag")
