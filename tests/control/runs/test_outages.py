"""A database that is away for a moment costs no run."""

import asyncio
import logging

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

from codefyui_core.control.db.outages import is_outage, log_failure


class Told(Exception):
    def __init__(self, sqlstate):
        super().__init__("the database said so")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OperationalError("SELECT", {}, ValueError("database is locked")), True),
        (NoConnectionLeft("QueuePool limit reached"), True),
        (ConnectionRefusedError(), True),
        (DBAPIError("SELECT", {}, ValueError("lost"), connection_invalidated=True), True),
        (DBAPIError("SELECT", {}, Told("57P03")), True),  # it is starting
        (DBAPIError("SELECT", {}, Told("57P01")), True),  # it is stopping
        (DBAPIError("SELECT", {}, Told("40P01")), True),  # a deadlock
        (DBAPIError("SELECT", {}, Told("53300")), True),  # too many connections
        (DBAPIError("SELECT", {}, Told("22003")), False),  # a number that doesn't fit
        (DBAPIError("SELECT", {}, Told(None)), False),
        (IntegrityError("INSERT", {}, ValueError("twice")), False),
        (ValueError(), False),
    ],
)
def test_what_passes_by_itself_is_told_apart_from_what_never_works(error, passes):
    assert is_outage(error) is passes


def test_an_outage_is_one_line_and_a_bug_has_its_traceback(caplog):
    log = logging.getLogger("test")
    for error in (ConnectionRefusedError("nobody there"), KeyError("a bug")):
        try:
            raise error
        except Exception as raised:
            log_failure(log, raised, "reading %s failed", "it")
    outage, bug = caplog.records
    assert (outage.levelname, outage.exc_info) == ("WARNING", None)
    assert outage.getMessage() == "reading it failed: nobody there"
    assert (bug.levelname, bug.exc_info[0]) == ("ERROR", KeyError)


@pytest.mark.point(46)
async def test_an_outage_while_a_run_is_placed_leaves_it_in_its_line(room, monkeypatch):
    dispatcher = room.service._dispatcher
    read, troubles = dispatcher._waiting, [0]

    async def away(run_id):
        troubles[0] += 1
        if troubles[0] < 3:
            raise DBAPIError("SELECT", {}, Told("57P03"))
        return await read(run_id)

    monkeypatch.setattr(dispatcher, "_waiting", away)
    agent = room.agent()
    await agent.connect()
    run_id = await room.submit(target=agent.name)
    while not agent.assigns(run_id):
        await asyncio.sleep(0.002)
        await room.time.advance(0.5)
    assert troubles[0] == 3
