"""``docs/workers.md`` against the line and the settings."""

import re
from pathlib import Path

from codefyui_core.agent import backoff
from codefyui_core.control.links import rate, tokens
from codefyui_core.errors import STATUS_BY_CODE
from codefyui_core.runs.options import RESERVED_NAMES
from codefyui_core.settings import ControlSettings
from codefyui_core.wire import limits
from codefyui_core.wire.messages import RefusalCode

TEXT = (Path(__file__).parents[2] / "docs" / "workers.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> set[str]:
    found = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found is not None, heading
    return set(re.findall(r"^\| `([^`]+)` \|", found.group(1), re.MULTILINE))


def test_every_refusal_of_a_connection_is_explained() -> None:
    assert first_cells("code") == {code.value for code in RefusalCode}


def test_every_refusal_of_a_token_is_explained() -> None:
    codes = {code for code in STATUS_BY_CODE if code.startswith("enrollment.")}
    assert first_cells("refused with") == codes - {"enrollment.not_found"}


def test_statuses_are_those_of_the_rows() -> None:
    from codefyui_core.control.links import rows

    source = Path(rows.__file__).read_text(encoding="utf-8")
    body = source.partition("def _status(")[2].partition("\n    def ")[0]
    given = set(re.findall(r'"(\w+)"', body))
    assert first_cells("status") == given


def test_numbers_are_those_of_the_code() -> None:
    assert f"nothing came for {limits.SILENCE_S:g} s; the agent, after {limits.AGENT_SILENCE_S:g} s" in TEXT
    assert f"with at most {backoff.MOST_S:g} s between two tries" in TEXT
    assert f"doesn't answer within {limits.PROBE_S:g} s" in TEXT
    assert f"(`CODEFYUI_WORKER_RESUME_GRACE_S`, {ControlSettings().worker_resume_grace_s:g} s)" in TEXT
    assert (tokens.DEFAULT_VALID_S, rate.REFUSALS, rate.WITHIN_S) == (24 * 3600, 10, 60)
    assert all(f"`{name}`" in TEXT for name in RESERVED_NAMES)
