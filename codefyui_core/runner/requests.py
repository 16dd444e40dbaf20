"""What the supervisor tells a keeper, and a keeper the supervisor: a JSON line each, over their socket."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""One for a process that is to be forked, the given cores for a run."""
DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
NUMERICS_VARIABLES = (
    *THREAD_VARIABLES,
    *DEVICE_VARIABLES,
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_CUDNN_V8_API_DISABLED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "MKL_CBWR",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "PYTHONHASHSEED",
)
"""Environment variables that change what torch and BLAS compute."""

KILL = b"K"
"""Supervisor to keeper: end the whole tree now."""
READY = b'{"kind":"ready"}'
"""First line on the event pipe: the process waits for ``go``."""
WRITTEN = b'{"kind":"written"}'
"""After the outcome of a run that records: what it had to write is written, or given up."""


def origin(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The numerics variables as this process has them, before anything is narrowed for a run."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in NUMERICS_VARIABLES if name in environ}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperRequest:
    """First line to a keeper."""

    supervisor: int
    run_id: str
    attempt: int
    work_dir: str
    entry: str
    """``module:function`` that executes the run in its process."""
    env: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    """The supervisor's own numerics variables."""
    cores: int | None = None
    cgroup: str | None = None
    """The group below which the run gets one of its own."""
    group_name: str = ""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "KeeperRequest":
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnd:
    """How a tree ended; a keeper's last line."""

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    """The kernel ended a process of it for memory."""
    peak_memory_bytes: int | None = None

    def to_line(self) -> bytes:
        return json.dumps({"end": asdict(self)}).encode() + b"\n"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "TreeEnd":
        return cls(**document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Descriptors that the supervisor made for one run."""

    link: int
    """Socket to the supervisor's side of the keeper."""
    control: int
    """Socket of the run process: ``go`` and ``stop``."""
    events: int
    stdout: int
    stderr: int

    def all(self) -> tuple[int, ...]:
        return (self.link, self.control, self.events, self.stdout, self.stderr)

    @classmethod
    def of(cls, numbers: list[int]) -> "Handles":
        link, control, events, stdout, stderr = numbers
        return cls(link=link, control=control, events=events, stdout=stdout, stderr=stderr)
