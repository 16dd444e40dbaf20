"""What plugins and runs see of a worker: made from its row and, while it is connected, from its hello."""

from dataclasses import replace
from datetime import datetime

from codefyui_core.ids import LinkId, WorkerId
from codefyui_core.plugin.views import WorkerView
from codefyui_core.runs.record import identity
from codefyui_core.wire.messages import Hello

from .session import Session
from .workers import WorkerRow


def view_of(
    row: WorkerRow, hello: Hello | None, *, server_machine_id: str, now: datetime | None = None
) -> WorkerView:
    """``hello`` None: not connected. ``now`` is the server's wall time when hello came."""
    machine_id = row.machine_id if hello is None else hello.machine_id
    view = WorkerView(
        id=WorkerId(row.id),
        name=row.name,
        connected=hello is not None,
        drained=row.drained,
        disabled=row.disabled,
        same_machine=machine_id == server_machine_id,
        one_shot=row.last_agent_one_shot if hello is None else hello.one_shot,
        version=row.version if hello is None else hello.version,
        plugins=row.plugins if hello is None else hello.plugins,
        link_id=None if row.link_id is None else LinkId(row.link_id),
        clock_skew_s=None if hello is None or now is None else _skew_s(hello, now),
    )
    return instance_view(view, hello.instance) if hello is not None and hello.instance else view


def instance_view(view: WorkerView, instance: str) -> WorkerView:
    """One of several agents of a worker, a one-shot worker in its own right."""
    return replace(
        view,
        id=WorkerId(identity(view.id, instance)),
        name=identity(view.name, instance),
        one_shot=True,
    )


def instance_row(row: WorkerRow, session: Session) -> WorkerRow:
    """The worker's row as it would read for a connected instance. It is never stored."""
    hello = session.hello
    return replace(
        row,
        id=session.worker_id,
        name=session.view.name,
        machine_id=hello.machine_id,
        home_id=hello.home_id,
        platform=hello.platform,
        last_agent_one_shot=True,
        last_one_shot_run=None,
        devices=tuple(hello.devices),
        version=hello.version,
        connector=hello.connector,
        catalog_hash=hello.catalog_hash,
        fingerprint=hello.fingerprint,
        plugins=hello.plugins,
        trust=None,
        facts={},
    )


def _skew_s(hello: Hello, now: datetime) -> float | None:
    return hello.wall_time_ms / 1000 - now.timestamp() if hello.wall_time_ms else None
