"""Which runs use files, and which of these can travel."""

import pytest

from codefyui_core.files import Family
from codefyui_core.graph import Seen, files_used, size_text
from codefyui_core.plugin import FileRole, FileSource

GIB = 1024**3


class Disk:
    """Uploads by family and name, plain paths by their text."""

    def __init__(self, uploads=(), folders=(), paths=()):
        self.uploads = dict(uploads)
        self.folders = set(folders)
        self.paths = dict(paths)

    def below(self, family, name):
        size = self.uploads.get((family, name))
        return Seen(present=size is not None or (family, name) in self.folders, size_bytes=size)

    def at(self, value):
        if value in self.paths:
            return self.paths[value]
        if value.startswith("data/samples/"):
            return Seen(present=True, size_bytes=3, source=FileSource.BUNDLED)
        return Seen(source=FileSource.DATA_PATH if value.startswith("data/") else FileSource.OTHER_PATH)


def used(write, definitions, disk, *nodes, limit=None, **more):
    """Of a graph in which every node is started."""
    listed = [write.node(f"n{index}", kind, **params) for index, (kind, params) in enumerate(nodes)]
    wires = [f"go!{node['id']}" for node in listed]
    return files_used(
        write.graph([write.node("go", "Start"), *listed], wires, **more), definitions, disk, limit_bytes=limit
    )


@pytest.mark.spec(
    "placement/no-files-run-accepts-any-worker", "placement/dataset-downloaders-count-as-no-files"
)
def test_a_run_without_files_uses_none(write, definitions):
    files = used(write, definitions, Disk(), ("Make", {}), ("Train", {"data_dir": "./data"}))
    assert (files.uses, files.uses_files, files.carry_problem) == ((), False, None)


@pytest.mark.spec("placement/bundled-sample-counts-as-no-files")
def test_a_bundled_sample_is_no_use_of_files(write, definitions):
    files = used(
        write, definitions, Disk(), ("ReadTable", {}), ("ReadPath", {"path": "data/samples/notes.txt"})
    )
    assert [use.source for use in files.uses] == [FileSource.BUNDLED, FileSource.BUNDLED]
    assert (files.uses_files, files.carry_problem) == (False, None)


@pytest.mark.spec("usesfiles/upload-readers-count", "transfer/eligible-inputs-are-file-field-uploads")
@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("ReadTable", Family.FILES),
        ("LoadPicture", Family.IMAGES),
        ("LoadModel", Family.MODELS),
        ("ReadAny", Family.FILES),
    ],
)
def test_an_upload_of_a_file_field_can_travel(write, definitions, kind, family):
    files = used(write, definitions, Disk({(family, "sub/a.x"): 7}), (kind, {"path": "./sub/a.x"}), limit=7)
    (use,) = files.uses
    assert (use.node_id, use.node_type, use.param, use.role) == ("n0", kind, "path", use.role)
    assert (use.source, use.family, use.size_bytes, use.present) == (FileSource.UPLOAD, family, 7, True)
    assert (files.uses_files, files.carry_problem) == (True, None)


@pytest.mark.spec("transfer/refuse-upload-server-lacks")
def test_an_upload_that_is_missing_cannot_travel_and_is_named(write, definitions):
    files = used(write, definitions, Disk(), ("ReadTable", {"path": "gone.csv"}))
    (use,) = files.uses
    assert (use.source, use.present, use.size_bytes) == (FileSource.UPLOAD, False, None)
    assert files.uses_files
    assert "gone.csv" in files.carry_problem


@pytest.mark.spec("usesfiles/reader-path-inside-data-folder-counts", "transfer/refuse-plain-path-readers")
@pytest.mark.parametrize(
    ("kind", "params", "shown"),
    [
        ("ReadPath", {"path": "data/files/notes.txt"}, "data/files/notes.txt"),
        ("ReadFolder", {"folder": "data/files/pictures"}, "data/files/pictures"),
        ("ReadAny", {"path": "documents"}, "documents"),
        ("ReadTable", {"path": "data/files/table.csv"}, "data/files/table.csv"),
    ],
)
def test_a_plain_path_in_the_data_folder_counts_but_cannot_travel(write, definitions, kind, params, shown):
    disk = Disk(folders=[(Family.FILES, "documents")])
    files = used(write, definitions, disk, (kind, params))
    assert [use.source for use in files.uses] == [FileSource.DATA_PATH]
    assert files.uses_files
    assert kind in files.carry_problem
    assert shown in files.carry_problem


def test_a_path_outside_the_data_folder_is_the_workers_own_business(write, definitions):
    files = used(
        write,
        definitions,
        Disk(),
        ("ReadPath", {"path": "/datasets/a.txt"}),
        ("ReadTable", {"path": "../x.csv"}),
    )
    assert [use.source for use in files.uses] == [FileSource.OTHER_PATH, FileSource.OTHER_PATH]
    assert (files.uses_files, files.carry_problem) == (False, None)


def test_what_an_earlier_run_recorded_can_travel_and_counts_to_the_limit(write, definitions):
    path = "data/runs/1/checkpoint/e3.pt"
    disk = Disk(paths={path: Seen(present=True, size_bytes=9, source=FileSource.ARTIFACT)})
    files = used(write, definitions, disk, ("LoadModel", {"path": path}), limit=9)
    assert (files.uses[0].source, files.uses_files, files.carry_problem) == (FileSource.ARTIFACT, True, None)
    assert used(write, definitions, disk, ("LoadModel", {"path": path}), limit=8).carry_problem is not None


@pytest.mark.spec("usesfiles/saver-nodes-count")
def test_a_saver_uses_files(write, definitions):
    document = write.graph({"go": "Start", "m": "Make", "s": "Save"}, ["go!m", "m.tensor>s.model"])
    files = files_used(document, definitions, Disk())
    (use,) = files.uses
    assert (use.role, use.source, use.family, use.value) == (
        FileRole.WRITES,
        FileSource.OUTPUT,
        Family.MODELS,
        "m.pt",
    )
    assert (files.uses_files, files.carry_problem) == (True, None)


@pytest.mark.spec("usesfiles/training-loop-periodic-outputs-count")
@pytest.mark.parametrize(
    ("params", "recorded"),
    [
        ({}, []),
        ({"checkpoint_every": 0, "tensorboard": False}, []),
        ({"checkpoint_every": 5}, [("checkpoint_every", Family.MODELS)]),
        ({"tensorboard": True}, [("tensorboard", Family.OUTPUT)]),
        (
            {"checkpoint_every": 1, "tensorboard": True},
            [("checkpoint_every", Family.MODELS), ("tensorboard", Family.OUTPUT)],
        ),
    ],
)
def test_what_a_node_records_depends_on_its_params(write, definitions, params, recorded):
    files = used(write, definitions, Disk(), ("Train", params))
    assert [(use.param, use.family) for use in files.uses] == recorded
    assert files.uses_files is bool(recorded)


@pytest.mark.spec("transfer/refuse-inputs-over-limit", "transfer/over-limit-reason-text")
def test_inputs_over_the_limit_cannot_travel_and_one_file_counts_once(write, definitions):
    disk = Disk({(Family.FILES, "a"): 2 * GIB, (Family.MODELS, "b"): int(1.1 * GIB)})
    nodes = [("ReadTable", {"path": "a"}), ("ReadAny", {"path": "a"}), ("LoadModel", {"path": "b"})]
    assert used(write, definitions, disk, *nodes[:2], limit=2 * GIB).carry_problem is None
    assert used(write, definitions, disk, *nodes, limit=2 * GIB).carry_problem == (
        "its inputs add up to 3.10 GiB, over the transfer limit of 2.00 GiB (CODEFYUI_TRANSFER_MAX_INPUT_BYTES)"
    )


def test_files_of_presets_subgraphs_and_mapped_presets_count(write, definitions):
    preset = write.preset("P", {"r": ("ReadTable", {"path": "x"})})
    mapped = write.preset("M", {"a": "Pass", "r": "ReadTable"}, [], ["x=a.tensor"], ["y=a.tensor"])
    mapped["nodes"][1]["params"] = {"path": "z"}
    sub = write.subgraph("s", {"r": write.node("r", "LoadModel", path="y")})
    disk = Disk({(Family.FILES, "x"): 1, (Family.MODELS, "y"): 2, (Family.FILES, "z"): 3})
    files = used(
        write,
        definitions,
        disk,
        ("preset:P", {}),
        ("subgraph:s", {}),
        ("Map", {"subgraph": "M"}),
        presets=[preset, mapped],
        subgraphs=[sub],
    )
    assert [(use.node_id, use.size_bytes) for use in files.uses] == [("n0__r", 1), ("n1/r", 2), ("r", 3)]


def test_only_nodes_that_run_count(write, definitions):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("idle", "ReadTable", path="x")]
    nodes += [write.node("off", "LoadModel", bypassed=True, path="y")]
    files = files_used(write.graph(nodes, ["go!m", "go!off"]), definitions, Disk())
    assert files.uses == ()


def test_an_empty_file_field_reads_nothing(write, definitions):
    assert used(write, definitions, Disk(), ("LoadModel", {}), ("ReadPath", {})).uses == ()


@pytest.mark.parametrize("name", ["../x", "a\\..\\x", "C:\\x", "con", "x" * 300, "\0"])
def test_a_hostile_name_is_never_asked_for_below_a_family(write, definitions, name):
    class Strict(Disk):
        def below(self, family, name):
            raise AssertionError(name)

    files = used(write, definitions, Strict(), ("ReadTable", {"path": name}))
    assert len(files.uses) == 1


def test_the_answer_is_equal_for_the_variants_of_a_sweep_and_hashable(write, definitions):
    disk = Disk({(Family.FILES, "a"): 1})
    first, second = (
        used(write, definitions, disk, ("ReadTable", {"path": "a"}), ("Make", {"shape": s})) for s in "12"
    )
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1024**2 - 1, "1024.00 KiB"),
        (2 * GIB, "2.00 GiB"),
        (5 * 1024**5, "5120.00 TiB"),
    ],
)
def test_sizes_have_two_decimals_and_binary_units(size, text):
    assert size_text(size) == text
