"""Every message of the line, a model each with its word ``t``. ``docs/protocol.md`` says when each is sent.

Unknown fields are ignored within one protocol number; unknown words are answered ``bad``.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import Outcome, Phase, StopReason

PROTOCOL = 1
"""Raised when a frame changes its meaning; ``version`` is the distribution's."""


class Frame(BaseModel):
    """Base of what travels: unknown names are ignored, so that a newer peer may say more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


# ---------------------------------------------------------------- shared shapes


class DeviceInfo(Frame):
    """One device that a machine offers."""

    device: str
    """cpu, cuda:N or mps:0, as run options name it."""
    name: str = ""
    uuid: str = ""
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None


class FailedPlugin(Frame):
    """A plugin that didn't load on the agent."""

    entry_point: str
    distribution: str
    error: str


class AttemptKey(Frame):
    """Names an attempt; the lease proves who may report it."""

    run_id: str
    attempt: int


class HelloAttempt(AttemptKey):
    """An attempt that the agent has, in memory or on disk."""

    lease: str
    db_id: str
    phase: Phase
    first_kept: int = 1
    last: int = 0
    devices: tuple[str, ...] = ()
    grant_version: int = 0
    bytes: int = 0
    stopping: bool = False
    """It was asked to stop; ``phase`` is the one that this interrupted."""


class ItemKind(StrEnum):
    """The kinds of records in an attempt's stream."""

    ACCEPTED = "accepted"
    EVENT = "event"
    ENVIRONMENT = "environment"
    EXITED = "exited"
    TOLD = "told"
    SKIP = "skip"
    END = "end"


class AcceptedItem(Frame):
    """The first item of every stream."""

    incarnation: str
    devices: tuple[str, ...] = ()
    fingerprint: str | None = None


class ExitedItem(Frame):
    """Every process of the run is gone: its slots are free."""

    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    peak_memory_bytes: int | None = None
    stderr_tail: tuple[str, ...] = ()
    devices_clear: bool = True


class SkipItem(Frame):
    """Positions ``from`` to ``to`` will never be sent."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    from_: Annotated[int, Field(alias="from")]
    to: int
    reason: Literal["corrupt", "not_kept", "late"]


class EndItem(Frame):
    """The last item: what ``conclude`` needs."""

    outcome: Outcome | None = None
    stop_reason: StopReason | None = None
    stopped_in_time: bool = True
    error: str | None = None
    cause: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    grace_s: float = 10.0


class ToldItem(Frame):
    """A backend's agent half to its control half."""

    backend: str
    message: JsonObject


class Item(Frame):
    """One record of a stream. ``seq`` isn't in it: the batch says the first one's."""

    kind: ItemKind
    type: str | None = None
    """For events: the event's type."""
    payload: dict[str, Any] = {}
    ts: int | None = None
    """Milliseconds since 1970, by the clock of the machine that made it."""


# ---------------------------------------------------------------- agent to control plane


class Hello(Frame):
    """First frame of each connection."""

    t: Literal["hello"] = "hello"
    protocol: int
    version: str
    name: str
    instance: str = ""
    incarnation: str
    home_id: str
    machine_id: str
    boot_id: str = ""
    pid: int = 0
    one_shot: bool = False
    run_id: str | None = None
    accepting: bool = True
    platform: str = ""
    devices: tuple[DeviceInfo, ...] = ()
    backends: dict[str, int] = {}
    connectors: dict[str, int] = {}
    connector: str = ""
    """The connector that dialled this connection."""
    plugins: dict[str, str] = {}
    plugins_failed: tuple[FailedPlugin, ...] = ()
    catalog_hash: str | None = None
    catalog_problem: str = ""
    fingerprint: str | None = None
    wall_time_ms: int = 0
    dial: int = 0
    """Counts the hellos of this incarnation, so that one which a line held back is known to be old."""
    attempts: tuple[HelloAttempt, ...] = ()


class Part(Frame):
    """A piece of a message over one frame."""

    t: Literal["part"] = "part"
    id: str
    word: str
    index: int
    count: int
    bytes: int
    sha256: str
    data: str


class CatalogMessage(Frame):
    """When the welcome asks: the agent's types with their definition hashes."""

    t: Literal["catalog"] = "catalog"
    hash: str
    types: dict[str, str]


class Items(AttemptKey):
    """A batch of consecutive items."""

    t: Literal["items"] = "items"
    lease: str = ""
    first: Annotated[int, Field(ge=1)]
    items: tuple[Item, ...]


class Refuse(AttemptKey):
    """Instead of ``accepted``: nothing began."""

    t: Literal["refuse"] = "refuse"
    code: Literal[
        "stopping",
        "draining",
        "disk_full",
        "device_unknown",
        "backend_unknown",
        "too_large",
        "busy",
        "catalog",
    ]
    detail: str = ""
    retry: bool = False


class AgentBeat(Frame):
    """Every ten seconds."""

    t: Literal["beat"] = "beat"
    n: int = 0
    free_memory: dict[str, int] = {}
    spool_bytes: int = 0
    accepting: bool = True
    live_count: int = 0
    live_hash: str = ""


class Report(Frame):
    """Once after the welcome, then with a beat when it changed; no assign before the first."""

    t: Literal["report"] = "report"
    storage: dict[str, JsonObject | None] = {}
    trust: JsonObject | None = None


class WantGrant(AttemptKey):
    """The grant ran out, or the agent lost its memory."""

    t: Literal["want_grant"] = "want_grant"
    have_version: int = 0
    why: str = ""


class ReadReply(Frame):
    """Part of the answer to ``read``; volatile."""

    t: Literal["read_reply"] = "read_reply"
    id: str
    part: int = 0
    last: bool = True
    data: JsonObject | None = None
    bytes: str = ""
    """In base64."""
    error: str | None = None
    code: str | None = None


class AgentBye(Frame):
    """Last frame before the agent closes."""

    t: Literal["bye"] = "bye"
    reason: Literal["done", "stopping", "drained"]


# ---------------------------------------------------------------- control plane to agent


class LineSettings(Frame):
    """What the control plane tells of its limits and times."""

    beat_s: float = 5.0
    agent_beat_s: float = 10.0
    silence_s: float = 20.0
    grace_s: float = 300.0
    frame_bytes: int = 1 << 20
    batch_bytes: int = 256 << 10
    window_bytes: int = 1 << 20


class WorkerIdentity(Frame):
    """Who the control plane takes the agent for."""

    id: str
    name: str
    instance: str = ""


class VerdictKind(StrEnum):
    """What is to become of an attempt that hello listed."""

    RESUME = "resume"
    LATE = "late"
    DISCARD = "discard"
    KEEP = "keep"
    """Of a foreign database: don't send."""


class Verdict(AttemptKey):
    """One for each listed attempt."""

    kind: VerdictKind
    position: int = 0
    stop: StopReason | None = None
    recorded: str | None = None


class Welcome(Frame):
    """Once a connection."""

    t: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL
    version: str
    db_id: str
    server_epoch: int
    session: int
    worker: WorkerIdentity
    settings: LineSettings = LineSettings()
    want_catalog: bool = False
    wall_time_ms: int = 0
    storage: dict[str, JsonObject] = {}
    verdicts: tuple[Verdict, ...] = ()


class RefusalCode(StrEnum):
    """Why a connection isn't accepted."""

    VERSION_MISMATCH = "version_mismatch"
    REVOKED = "revoked"
    UNKNOWN_CREDENTIAL = "unknown_credential"
    NAME_HELD = "name_held"
    OTHER_NAME = "other_name"
    RUN_NOT_WAITING = "run_not_waiting"
    BUSY = "busy"
    BAD_MESSAGE = "bad_message"


class Refused(Frame):
    """The control plane closes after it."""

    t: Literal["refused"] = "refused"
    code: RefusalCode
    reason: str
    retry: Literal["never", "later"]
    after_s: float | None = None


class Assign(AttemptKey):
    """A run for this agent. Grants and SECRET values are memory only on both sides."""

    t: Literal["assign"] = "assign"
    lease: str
    db_id: str
    graph: JsonObject
    """The document as submitted, SECRET values filled in, installed presets embedded."""
    options: JsonObject
    devices: tuple[str, ...]
    name: str = ""
    backend: str | None = None
    ticket: JsonObject | None = None
    grant: JsonObject | None = None
    grant_version: int = 0
    stop_grace_s: float = 10.0


class AckEntry(AttemptKey):
    """Everything up to ``seq`` is committed."""

    seq: int
    recorded: str | None = None
    """The run's final status once its end item is in."""


class Ack(Frame):
    """After commit; cumulative."""

    t: Literal["ack"] = "ack"
    acks: tuple[AckEntry, ...]
    window_bytes: int | None = None


class Rewind(AttemptKey):
    """A batch began beyond position + 1: send again from there."""

    t: Literal["rewind"] = "rewind"
    position: int


class Stop(AttemptKey):
    """Ask the run to stop; idempotent."""

    t: Literal["stop"] = "stop"
    reason: StopReason
    grace_s: float = 10.0


class GrantMessage(AttemptKey):
    """New credentials for a live attempt; the highest version wins."""

    t: Literal["grant"] = "grant"
    version: int
    grant: JsonObject | None = None
    backend: str | None = None
    ticket: JsonObject | None = None


class ControlBeat(Frame):
    """Whenever nothing else was sent for five seconds."""

    t: Literal["beat"] = "beat"
    n: int = 0


class ReadWord(StrEnum):
    """What is asked of recorded outputs."""

    LIST = "list"
    VALUE = "value"
    STATS = "stats"
    STEPS = "steps"
    REMOVE = "remove"
    CANCEL = "cancel"
    """Nobody waits for the answer to the read of this id any more."""


class ReadRequest(Frame):
    """Recorded outputs of a run on the agent."""

    t: Literal["read"] = "read"
    id: str
    run_id: str
    what: ReadWord
    node: str = ""
    port: str = ""
    slice: str | None = None
    max_elements: int = 0


class ControlBye(Frame):
    """Last frame before the control plane closes."""

    t: Literal["bye"] = "bye"
    reason: Literal["shutdown", "restart", "replaced", "revoked", "resync", "run_gone", "drained", "done"]
    back_within_s: float | None = None


# ---------------------------------------------------------------- both directions


class Bad(Frame):
    """Answer to an unknown or unreadable frame; logged, never answered."""

    t: Literal["bad"] = "bad"
    word: str
    reason: str


FromAgent = Annotated[
    Hello
    | Part
    | CatalogMessage
    | Items
    | Refuse
    | AgentBeat
    | Report
    | WantGrant
    | ReadReply
    | AgentBye
    | Bad,
    Field(discriminator="t"),
]
FromControl = Annotated[
    Welcome
    | Refused
    | Part
    | Assign
    | Ack
    | Rewind
    | Stop
    | GrantMessage
    | ControlBeat
    | ReadRequest
    | ControlBye
    | Bad,
    Field(discriminator="t"),
]
