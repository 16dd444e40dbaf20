"""Events from a run process over its worker's spool and line into the server's database."""

import time
from contextlib import closing
from datetime import datetime

from codefyui_core.wire.limits import BATCH_ITEMS

from . import chatter, raw_inserts
from .measure import Row, in_turns
from .plan import Effort
from .processes import Site, site


def whole_way(effort: Effort) -> Row:
    count = effort.choose(30_000, 1_000)
    folder = effort.folder / "whole-way"
    chatter.install(folder)
    with site(folder, **chatter.LIGHT) as made:
        made.start_server()
        made.start_agent()
        run_id, _ = report(made, count)
        file = made.user_data / "codefyui.db"
        batches = raw_inserts.batches(file, run_id, 1, count, BATCH_ITEMS)
        with closing(raw_inserts.empty_copy(file, folder / "raw.db")) as database:
            raw = raw_inserts.Rounds(database, batches, count)
            whole, bare = in_turns(effort.choose(5, 1), lambda: report(made, count)[1], raw.insert)
    return Row(
        benchmark="events",
        figure="run process, agent, line, database",
        unit="events/s",
        samples=[count / seconds for seconds in whole],
        baseline="bare inserts of the same rows",
        baseline_samples=[count / seconds for seconds in bare],
    )


def report(place: Site, count: int) -> tuple[str, float]:
    """A run of that many events on the worker; seconds from its first one to the commit of its last."""
    run_id = chatter.submit(place, count)
    began = datetime.fromisoformat(chatter.wait_reported(place, run_id, 0)["ts"]).timestamp()
    chatter.wait_reported(place, run_id, count)
    seconds = time.time() - began
    place.wait_end(run_id)
    return run_id, seconds
