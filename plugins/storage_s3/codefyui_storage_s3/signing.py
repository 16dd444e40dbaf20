"""Makes botocore sign by the store's clock. By itself it signs with the machine's, and corrects nothing.

While the two agree nothing here takes part. botocore is imported when a client is made.
"""

from functools import cache
from typing import Any

from .store_time import StoreTime

_STAMP = "%Y%m%dT%H%M%SZ"
_SIGNED_AT = "codefyui_signed_at"
_OURS = "codefyui-"


def sign_by(client: Any, service: str, store_time: StoreTime) -> None:
    """Of a client of boto3, all requests and addresses from now on."""
    known = _signers()

    def choose(signature_version: object, **_: object) -> str | None:
        ours = f"{_OURS}{signature_version}"
        return ours if store_time.corrects and ours in known else None

    def stamp(request: Any, **_: object) -> None:
        request.context[_SIGNED_AT] = store_time.now().strftime(_STAMP)

    client.meta.events.register(f"choose-signer.{service}", choose)
    client.meta.events.register(f"before-sign.{service}", stamp)


def address_signer(
    access_key_id: str, secret_access_key: str, *, region: str, expires_s: int, store_time: StoreTime
) -> Any:
    """Signs addresses of objects, all of them with the time that it is now: its ``add_auth`` takes an ``AWSRequest``."""
    from botocore.credentials import Credentials

    keys = Credentials(access_key_id, secret_access_key)
    made = _signers()[f"{_OURS}s3v4-query"](keys, "s3", region, expires=expires_s)
    made.signed_at = store_time.now().strftime(_STAMP)
    return made


@cache
def _signers() -> "dict[str, type[Any]]":
    """By signature version, and known to botocore."""
    from botocore.auth import AUTH_TYPE_MAPS, S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth

    class ByTheStoresClock:
        """What a request is signed with is put together after this."""

        signed_at = ""

        def _modify_request_before_signing(self, request: Any) -> None:
            request.context["timestamp"] = self.signed_at or request.context[_SIGNED_AT]
            super()._modify_request_before_signing(request)  # type: ignore[misc]

    bases = {"v4": SigV4Auth, "s3v4": S3SigV4Auth, "s3v4-query": S3SigV4QueryAuth}
    made = {
        f"{_OURS}{name}": type(f"{base.__name__}ByTheStore", (ByTheStoresClock, base), {})
        for name, base in bases.items()
    }
    AUTH_TYPE_MAPS.update(made)
    return made
