"""Seeds of nodes out of a run's, so that adding a node shifts nobody else's randomness."""

import hashlib
import random
import secrets
import sys


def derive(seed: int, *path: str) -> int:
    """32 bits of BLAKE2b (RFC 7693) over seed, node id and label."""
    text = "/".join((str(seed), *path)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())


def fresh() -> int:
    """One that nothing determines."""
    return secrets.randbits(32)


def seed_libraries(seed: int, device: str) -> None:
    """The process-wide generators of all libraries that are imported; accelerators' only when one is used."""
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed)
    if torch is None:
        return
    torch.default_generator.manual_seed(seed)
    if device.startswith("cuda"):
        torch.cuda.manual_seed_all(seed)
    elif device.startswith("mps"):
        torch.mps.manual_seed(seed)
