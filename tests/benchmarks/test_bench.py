"""Each benchmark measures something and says it. How fast anything is depends on the machine, and isn't asked."""

import json
import math
from pathlib import Path

import pytest

from codefyui_core.cli.__main__ import main

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def bench(tmp_path, capfd):
    """``cdui bench`` with little work; the status and what was printed."""

    def run(*arguments, root=CHECKOUT):
        environ = {"CODEFYUI_DIR": str(root), "CODEFYUI_USER_DATA_DIR": str(tmp_path / "user")}
        status = main(("bench", *arguments), environ=environ)
        return status, capfd.readouterr()

    return run


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("engine-overhead", {"ms"}),
        pytest.param("events", {"events/s"}, marks=pytest.mark.service),
        pytest.param("drain", {"events/s", "µs", "s"}, marks=pytest.mark.service),
        pytest.param("fleet", {"s", "MB", "%"}, marks=pytest.mark.service),
        ("dead-line", {"s"}),
        pytest.param("memory", {"MB"}, marks=pytest.mark.service),
        pytest.param("start", {"s"}, marks=pytest.mark.service),
        pytest.param("queue", {"ms"}, marks=pytest.mark.service),
        pytest.param("first-node", {"s"}, marks=pytest.mark.service),
        pytest.param("transfer", {"MB", "MB/s"}, marks=[pytest.mark.service, pytest.mark.needs("nginx")]),
        pytest.param("s3", {"MB/s"}, marks=pytest.mark.service),
        pytest.param("files", {"s", "ms"}, marks=pytest.mark.service),
    ],
)
def test_a_benchmark_prints_its_rows_beside_their_baselines(bench, tmp_path, name, units):
    status, said = bench(name, "--quick", "--json", "--results", str(tmp_path / "results"))
    assert status == 0, said.err
    found = json.loads(said.out)
    assert found["rows"]
    for row in found["rows"]:
        assert row["benchmark"] == name
        assert row["figure"]
        assert row["baseline"]
        assert len(row["samples"]) == len(row["baseline_samples"]) > 0
        assert all(math.isfinite(one) and one > 0 for one in (*row["samples"], *row["baseline_samples"]))
        assert row["ratio"] > 0
    assert {row["unit"] for row in found["rows"]} == units
    (file,) = (tmp_path / "results").glob("*.json")
    assert json.loads(file.read_text()) == found


def test_the_table_has_a_line_for_each_row(bench, tmp_path):
    status, said = bench("engine-overhead", "--quick", "--results", str(tmp_path))
    assert status == 0, said.err
    assert [line.split()[0] for line in said.out.splitlines()[:3]] == [
        "BENCHMARK", "engine-overhead", "engine-overhead",
    ]  # fmt: skip


def test_an_unknown_name_is_a_usage_error(bench):
    status, said = bench("nonsense")
    assert status == 2
    assert "there are engine-overhead, events" in said.err


def test_without_a_checkout_it_says_where_benchmarks_are(bench, tmp_path):
    status, said = bench("events", root=tmp_path)
    assert status == 1
    assert "part of a checkout" in said.err
