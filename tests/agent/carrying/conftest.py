"""An agent with a storage backend that carries files through a folder."""

import hashlib
from dataclasses import replace

import pytest

from codefyui_core.files import Family
from codefyui_core.plugin.storage import InputItem, Ticket
from codefyui_core.settings import ControlSettings
from codefyui_core.testing.doubles.folder_backend import FolderBackend
from codefyui_core.wire.messages import GrantMessage


class Carried:
    """``backend`` is a double; ``spool`` its folder, where the control plane would be."""

    def __init__(self, line, spool):
        self.line = line
        self.spool = spool
        self.wants = []
        self.versions = {}
        self.grants = lambda: None
        """What the next grant is; None: none is sent."""
        self.tickets = {}
        line.desk.want_grant = self._want
        self.use(FolderBackend(spool))

    def use(self, backend):
        self.backend = backend
        registry = self.line.registry
        self.line.registry = replace(registry, backends={**registry.backends, backend.name: backend})
        return backend

    def upload(self, name, data=b"1,2\n", family=Family.FILES):
        digest = hashlib.sha256(data).hexdigest()
        self.spool.mkdir(exist_ok=True)
        (self.spool / digest).write_bytes(data)
        return InputItem(sha256=digest, size_bytes=len(data), family=family, name=name)

    async def assign(self, run_id="r1", *inputs, **more):
        ticket = Ticket(inputs=inputs).model_dump(mode="json")
        self.tickets[run_id] = ticket
        self.versions[run_id] = more.get("grant_version", 0)
        known = {"backend": self.backend.name, "ticket": ticket} | more
        return await self.line.control.assign(run_id, **known)

    async def begin(self, run_id="r1", *inputs, **more):
        """Up to the start of user code."""
        number = len(self.line.starter.processes)
        stored = await self.assign(run_id, *inputs, **more)
        process = await self.line.starter.process(number)
        await process.went
        return stored, process

    async def grace(self, seconds):
        """What the control plane says; before the agent starts."""
        control = self.line.control
        await control.crash()
        control.settings = ControlSettings(worker_resume_grace_s=seconds)
        await control.start()

    async def ended(self, stored):
        await self.line.until(lambda: stored.final, "the end of the run")
        return stored

    async def _want(self, worker_id, want):
        self.wants.append(want)
        grant = self.grants()
        if grant is None:
            return
        self.versions[want.run_id] += 1
        whole = want.have_version == 0
        (link,) = self.line.control.service.live()
        link.send(
            GrantMessage(
                run_id=want.run_id,
                attempt=want.attempt,
                version=self.versions[want.run_id],
                grant=grant or None,
                backend=self.backend.name if whole else None,
                ticket=self.tickets[want.run_id] if whole else None,
            )
        )

    def data(self, run_id="r1"):
        return self.line.user_data / "agent-runs" / run_id / "data"

    @property
    def cache(self):
        return self.line.user_data / "agent-cache"

    def cached(self):
        return sorted(path.name for path in self.cache.iterdir() if not path.name.startswith("."))

    def write(self, relative, content="x", run_id="r1"):
        path = self.data(run_id) / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def report(self, process, relative, key, kind="checkpoint", run_id="r1", **more):
        """As a run's process does."""
        path = self.data(run_id) / relative
        payload = {
            "artifact_id": key,
            "kind": kind,
            "name": path.name,
            "path": str(path),
            "relative_path": relative,
            "size_bytes": path.stat().st_size,
            "is_folder": path.is_dir(),
            "node_id": "n",
            "meta": {},
        }
        process.say(type_="artifact", payload=payload | more)

    def sent(self, key, run_id="r1"):
        """What arrived of an output."""
        return (self.spool / "outputs" / run_id / key).read_text()


def artifacts(stored):
    return [one.payload for one in stored.items if one.type == "artifact"]


def warnings(stored, kind=None):
    found = [one.payload for one in stored.items if one.type == "run_warning"]
    return [one for one in found if kind in (None, one["kind"])]


@pytest.fixture
async def carried(line, tmp_path, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.window.FIRST_S", 0.02)
    monkeypatch.setattr("codefyui_core.agent.carrying.window.MOST_S", 0.1)
    made = Carried(line, tmp_path / "carrier")
    made.artifacts, made.warnings = artifacts, warnings
    return made
