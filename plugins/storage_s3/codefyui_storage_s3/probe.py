"""Tries a bucket with a tiny object: stored, read, compared, removed. Finds out which addressing style works."""

from collections.abc import Callable

from codefyui_core.plugin import Refused, StorageProblem

from .body import Unwatched
from .client import BucketClient
from .fetching import body_of
from .models import Bucket, Style
from .settings import Addressing, S3Settings
from .style import styles_to_try

CONTENT = b"CodefyUI tries whether it can store files here."


async def working_bucket(settings: S3Settings, client: Callable[[Bucket], BucketClient], name: str) -> Bucket:
    """The bucket of the settings, with a style that works. ``name`` is the object's, and this server's alone.

    Raises: StorageProblem of the likeliest style when none does.
    """
    first: StorageProblem | None = None
    styles = styles_to_try(settings.s3_endpoint_url, settings.s3_bucket, settings.s3_addressing_style.style)
    for style in styles:
        bucket = bucket_of(settings, style)
        try:
            await _try(client(bucket), f"{settings.s3_prefix}probe/{name}")
        except StorageProblem as error:
            first = first or error
        else:
            return bucket
    assert first is not None
    if settings.s3_addressing_style is Addressing.AUTO:
        raise first
    other = Style.VIRTUAL if styles[0] is Style.PATH else Style.PATH
    hint = f"if it needs another addressing style, set CODEFYUI_S3_ADDRESSING_STYLE={other}"
    raise type(first)(f"{first.message}; {hint}", code=first.code)


def bucket_of(settings: S3Settings, style: Style) -> Bucket:
    return Bucket(
        name=settings.s3_bucket,
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        style=style,
    )


async def _try(client: BucketClient, key: str) -> None:
    await client.call("put_object", key, Body=CONTENT)
    try:
        came = await client.threads.run(_read, client, key)
    finally:
        await client.call("delete_object", key)
    if came != CONTENT:
        raise Refused(
            f"bucket {client.bucket.name} at {client.bucket.address} gives back other bytes than it was given "
            f"({len(came)} for {len(CONTENT)}); it can't be used"
        )


def _read(client: BucketClient, key: str) -> bytes:
    answer = client.ask("get_object", key)
    return b"".join(body_of(client, key, answer, len(CONTENT), Unwatched()))
