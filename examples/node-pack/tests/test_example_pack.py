"""The pack holds to the contract, and its node computes what it says."""

import numpy as np
import pytest
from codefyui_example_pack.moving_average import MovingAverage
from codefyui_example_pack.plugin import ExampleCatalog

from codefyui_core.plugin import CodefyError, NodeCatalog
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_core.testing.suites import CatalogSuite


class TestTheCatalog(CatalogSuite):
    heavy = (*CatalogSuite.heavy, "numpy")

    @pytest.fixture
    def catalog(self) -> NodeCatalog:
        return ExampleCatalog()


def test_the_type_carries_the_packs_name():
    assert MovingAverage.define("example").type == "example:MovingAverage"


@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
def test_each_number_is_the_mean_of_the_window_that_ends_there(tmp_path, window):
    series = [float(number) for number in (3, 1, 4, 1, 5, 9, 2, 6)]
    expected = [np.mean(series[max(0, end - window) : end]) for end in range(1, len(series) + 1)]
    found = execute(MovingAverage, {"series": series}, root=tmp_path, window=window)
    assert found["smooth"] == pytest.approx(expected)
    assert found["last"] == pytest.approx(expected[-1])


def test_the_newest_value_is_a_metric_of_the_run(tmp_path):
    context = RecordingContext(root=tmp_path)
    execute(MovingAverage, {"series": [1, 2, 3]}, context)
    assert context.metrics == [("last", 2.0, None)]


@pytest.mark.parametrize("series", [[], 7, [[1, 2], [3, 4]]])
def test_what_is_no_list_of_numbers_is_refused(tmp_path, series):
    with pytest.raises(CodefyError, match="wire a list"):
        execute(MovingAverage, {"series": series}, root=tmp_path)
