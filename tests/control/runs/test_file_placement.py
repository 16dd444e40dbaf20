"""Which worker gets a run because of its files, with the built-in backend and doubles of a share and of a carrier."""

import json
from types import SimpleNamespace

import pytest

from codefyui_core.builtin.local.backend import LocalBackend
from codefyui_core.errors import CodefyError, status_of
from codefyui_core.files import Folders
from codefyui_core.graph import Definitions
from codefyui_core.plugin.node import DataType, NodeDefinition, Param, ParamKind, Port
from codefyui_core.plugin.storage import (
    Because,
    Offer,
    Refusal,
    Staged,
    StorageBackend,
    StorageControl,
    StorageKind,
    Ticket,
)
from codefyui_core.plugin.views import FileRole

GIB = 1 << 30


class Share(StorageControl):
    """Serves workers whose facts say that they have the mount."""

    def offer(self, files, worker, facts):
        if worker.name.startswith("mounted"):
            return Offer()
        return Refusal(
            because=Because.WORKER,
            reason="no mount",
            lack="has no `data` mount",
            remedy="add `--mount data=...` to its agent",
        )

    async def stage(self, run, worker, attempt):
        return Staged(ticket=Ticket())

    accept = place = read = discard = None


class Carrier(Share):
    """Serves every worker, what can travel."""

    on = True

    def offer(self, files, worker, facts):
        because, reason = Because.RUN, files.carry_problem
        if not self.on:
            because, reason = Because.OFF, "it is switched off (CODEFYUI_TRANSFER_ENABLED=0)"
        if reason is None:
            return Offer()
        return Refusal(
            because=because, reason=reason, remedy=f"make the run fit the transfer backend: {reason}"
        )


for double in (Share, Carrier):
    double.__abstractmethods__ = frozenset()


def described(name, kind, preference):
    class Backend(StorageBackend):
        def control(self, host):
            raise NotImplementedError

        def agent(self, host):
            raise NotImplementedError

    made = Backend()
    made.name, made.title, made.kind, made.preference = name, name, kind, preference
    return made


def node_type(type_, **more):
    return NodeDefinition(type=type_, category="Test", **more)


DEFINITIONS = Definitions.of(
    [
        node_type("Start", outputs=(Port(name="trigger", type=DataType.TRIGGER),)),
        node_type("Make"),
        node_type("ReadTable", params=(Param(name="path", kind=ParamKind.DATA_FILE, default=""),)),
        node_type("LoadModel", params=(Param(name="path", kind=ParamKind.MODEL_FILE, default=""),)),
        node_type(
            "ReadText", params=(Param(name="path", kind=ParamKind.STRING, default="", path=FileRole.READS),)
        ),
        node_type(
            "Save",
            params=(Param(name="name", kind=ParamKind.STRING, default="m.pt", path=FileRole.WRITES),),
        ),
    ]
)


TYPES = frozenset(DEFINITIONS.nodes)


@pytest.fixture
async def sited(closed_room, tmp_path):
    """Local, mount and transfer, as in a site with these plugins; an upload ``a.csv`` of four bytes."""
    room = closed_room
    room.catalog = SimpleNamespace(definitions=DEFINITIONS, devices=room.catalog.devices)
    room.data = tmp_path / "backend" / "data"
    local = LocalBackend()
    host = SimpleNamespace(folders=Folders(root=room.data))
    room.carrier = Carrier()
    room.stores |= {"local": local.control(host), "mount": Share(), "transfer": room.carrier}
    room.backends |= {
        "local": local,
        "mount": described("mount", StorageKind.SHARED, 10),
        "transfer": described("transfer", StorageKind.CARRIER, 50),
    }
    await room.open(transfer_max_input_bytes=2 * GIB)
    (room.data / "files" / "a.csv").write_bytes(b"1,2\n")
    return room


def one(kit, kind, **params):
    return kit.graph(kit.node("it", kind, **params))


def sparse(path, size):
    with path.open("wb") as file:
        file.truncate(size)


async def refused(room, document, target="gpu-box-1"):
    """The whole sentence of a submit that is refused with 400, and nothing was stored."""
    with pytest.raises(CodefyError) as caught:
        await room.submit(document, target=target)
    assert (status_of(caught.value.code), caught.value.code) == (400, "storage.refused")
    assert (await room.service.list())["runs"] == []
    return caught.value.message


async def sent(room, agent, document, target):
    """By which backend a run goes to an agent."""
    run_id = await room.submit(document, target=target)
    await agent.got(run_id)
    return agent.assigns(run_id)[0].backend


SENTENCE = (
    "worker gpu-box-1 has no `data` mount; add `--mount data=...` to its agent, or make the run fit the transfer "
    "backend: "
)


# ---------------------------------------------------------------- the sentence


@pytest.mark.spec(
    "placement/refusal-message-text", "transfer/over-limit-reason-text", "transfer/refuse-inputs-over-limit"
)
async def test_inputs_over_the_limit_are_refused_in_the_words_of_the_manual(sited, kit):
    sparse(sited.data / "files" / "large.csv", int(3.1 * GIB))
    await sited.worker("gpu-box-1", node_types=TYPES)
    assert await refused(sited, one(kit, "ReadTable", path="large.csv")) == (
        "worker gpu-box-1 has no `data` mount; add `--mount data=...` to its agent, or make the run fit the transfer "
        "backend: its inputs add up to 3.10 GiB, over the transfer limit of 2.00 GiB "
        "(CODEFYUI_TRANSFER_MAX_INPUT_BYTES)"
    )


@pytest.mark.spec("placement/refusal-message-text", "placement/named-non-mount-worker-400-at-submit")
@pytest.mark.parametrize(
    ("kind", "path", "reason"),
    [
        (
            "ReadText",
            "data/files/a.csv",
            "ReadText (it) reads the path data/files/a.csv instead of an upload",
        ),
        ("ReadTable", "gone.csv", "the server has no upload gone.csv, which ReadTable (it) reads"),
        (
            "LoadModel",
            "data/runs/r1/none.pt",
            "LoadModel (it) reads the path data/runs/r1/none.pt instead of an upload",
        ),
    ],
)
async def test_each_reason_ends_the_sentence(sited, kit, kind, path, reason):
    await sited.worker("gpu-box-1", node_types=TYPES)
    assert await refused(sited, one(kit, kind, path=path)) == SENTENCE + reason


@pytest.mark.spec(
    "placement/transfer-disabled-refuses-uploads-run",
    "usesfiles/upload-readers-count",
    "usesfiles/saver-nodes-count",
)
@pytest.mark.parametrize(("kind", "params"), [("ReadTable", {"path": "a.csv"}), ("Save", {})])
async def test_with_the_carrier_off_an_upload_is_refused_and_with_it_on_it_goes(sited, kit, kind, params):
    agent = await sited.worker("gpu-box-1", node_types=TYPES)
    document = one(kit, kind, **params)
    sited.carrier.on = False
    said = await refused(sited, document)
    assert said == SENTENCE + "it is switched off (CODEFYUI_TRANSFER_ENABLED=0)"
    sited.carrier.on = True
    sited.service.stores_changed()
    assert await sent(sited, agent, document, "gpu-box-1") == "transfer"


async def test_a_worker_of_this_machine_that_may_not_read_its_folders_is_told_so_when_only_local_is_there(
    sited, kit
):
    for name in ("mount", "transfer"):
        del sited.stores[name], sited.backends[name]
    await sited.worker("gpu-box-1", node_types=TYPES, same_machine=True)
    said = await refused(sited, one(kit, "ReadTable", path="a.csv"))
    assert said == (
        f"worker gpu-box-1 can't read and write the server's folder {sited.data}; start its agent as a user that may"
    )


# ---------------------------------------------------------------- named workers


@pytest.mark.spec("placement/no-files-run-accepts-any-worker", "placement/bundled-sample-counts-as-no-files")
@pytest.mark.parametrize(("kind", "params"), [("Make", {}), ("ReadTable", {"path": "data/samples/iris.csv"})])
async def test_a_run_without_files_goes_anywhere_without_any_backend(sited, kit, kind, params):
    samples = sited.data / "samples"
    samples.mkdir(exist_ok=True)
    (samples / "iris.csv").write_text("1")
    sited.carrier.on = False
    agent = await sited.worker("gpu-box-1", node_types=TYPES)
    assert await sent(sited, agent, one(kit, kind, **params), "gpu-box-1") is None


@pytest.mark.spec(
    "placement/mount-worker-takes-uploads-run",
    "placement/mount-worker-takes-runs-transfer-cannot-carry",
    "placement/named-non-mount-worker-takes-uploads-run-by-transfer",
)
async def test_a_worker_with_the_mount_gets_every_shape_of_run_by_it(sited, kit):
    sited.carrier.on = False
    sparse(sited.data / "files" / "large.csv", 3 * GIB)
    agent = await sited.worker("mounted", node_types=TYPES)
    shapes = [
        ("ReadTable", {"path": "a.csv"}),
        ("ReadText", {"path": "data/files/a.csv"}),
        ("ReadTable", {"path": "gone.csv"}),
        ("ReadTable", {"path": "large.csv"}),
        ("Save", {}),
    ]
    for kind, params in shapes:
        run_id = await sited.submit(one(kit, kind, **params), target="mounted")
        key = await agent.accept(run_id)
        assert agent.assigns(run_id)[0].backend == "mount", kind
        await agent.finish(key)


async def test_a_checkpoint_of_an_earlier_run_goes_by_the_carrier(sited, kit):
    checkpoint = sited.data / "runs" / "r1" / "checkpoint" / "e3.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"weights")
    agent = await sited.worker("gpu-box-1", node_types=TYPES)
    document = one(kit, "LoadModel", path="data/runs/r1/checkpoint/e3.pt")
    assert await sent(sited, agent, document, "gpu-box-1") == "transfer"
    assert "data/runs/r1" in json.dumps(agent.received[-1].graph)


# ---------------------------------------------------------------- any


@pytest.mark.spec(
    "placement/any-runs-uploads-missing-or-over-limit-skip",
    "placement/any-skips-workers-that-cannot-carry-files",
)
@pytest.mark.parametrize("name", ["gone.csv", "large.csv"])
async def test_any_leaves_out_who_cannot_get_the_files_and_waits_for_who_can(sited, kit, name):
    sparse(sited.data / "files" / "large.csv", 3 * GIB)
    other = await sited.worker("gpu-box-1", node_types=TYPES)
    run_id = await sited.submit(one(kit, "ReadTable", path=name), target="any")
    await sited.settled()
    assert (await sited.status(run_id), other.assigns(run_id)) == ("queued", [])
    shared = await sited.worker("mounted", node_types=TYPES)
    await shared.got(run_id)
    assert (shared.assigns(run_id)[0].backend, other.assigns(run_id)) == ("mount", [])


@pytest.mark.spec("placement/file-run-needs-mount-or-file-carrier")
async def test_without_mount_and_carrier_any_waits_and_says_why(sited, kit):
    sited.carrier.on = False
    other = await sited.worker("gpu-box-1", node_types=TYPES)
    run_id = await sited.submit(one(kit, "ReadTable", path="a.csv"), target="any")
    await sited.settled()
    assert (await sited.status(run_id), other.assigns(run_id)) == ("queued", [])
    assert (await sited.row(run_id))["queue_reason"]
    sited.carrier.on = True
    sited.service.stores_changed()
    await other.got(run_id)
    assert other.assigns(run_id)[0].backend == "transfer"
