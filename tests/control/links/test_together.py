"""Batches that wait for the database, taken in together."""

from codefyui_core.control.links.together import MAX_BYTES, MAX_ITEMS, together
from codefyui_core.wire.messages import AgentBye, Item, ItemKind, Items, Refuse


def batch(first, count, *, run_id="r1", attempt=1, lease="secret"):
    items = tuple(Item(kind=ItemKind.EVENT, type="log", payload={"n": first + n}) for n in range(count))
    return Items(run_id=run_id, attempt=attempt, lease=lease, first=first, items=items)


def taken(*messages, size=100):
    return together([(size, message) for message in messages])


def test_one_message_is_itself():
    for message in (batch(1, 3), AgentBye(reason="done")):
        assert taken(message) == (message, 1)


def test_batches_that_follow_each_other_are_one():
    whole = batch(5, 9)
    assert taken(batch(5, 2), batch(7, 4), batch(11, 3)) == (whole, 3)


def test_other_attempts_wait_for_their_turn():
    first = batch(1, 2)
    for other in (batch(3, 2, run_id="r2"), batch(3, 2, attempt=2), batch(3, 2, lease="other")):
        assert taken(first, other) == (first, 1)


def test_what_is_no_batch_stays_where_it_is():
    first = batch(1, 2)
    refuse = Refuse(run_id="r9", attempt=1, code="busy")
    assert taken(first, refuse, batch(3, 2)) == (first, 1)
    assert taken(refuse, batch(3, 2)) == (refuse, 1)


def test_numbers_that_do_not_go_on_are_taken_in_by_themselves():
    first = batch(1, 2)
    for other in (batch(2, 2), batch(4, 2), batch(1, 2)):
        assert taken(first, other) == (first, 1)


def test_what_follows_a_skip_is_taken_in_by_itself():
    skip = Item(kind=ItemKind.SKIP, payload={"from": 3, "to": 10, "reason": "corrupt"})
    skipping = Items(run_id="r1", attempt=1, lease="secret", first=3, items=(skip,))
    both, count = taken(batch(1, 2), skipping, batch(11, 2))
    assert count == 2
    assert both.items[-1] == skip


def test_a_transaction_stays_within_its_limits():
    _, count = taken(
        batch(1, MAX_ITEMS // 2), batch(MAX_ITEMS // 2 + 1, MAX_ITEMS // 2), batch(MAX_ITEMS + 1, 1)
    )
    assert count == 2
    _, count = taken(batch(1, 1), batch(2, 1), batch(3, 1), size=MAX_BYTES // 2)
    assert count == 2
    too_large, count = taken(batch(1, 1), size=2 * MAX_BYTES)
    assert (too_large, count) == (batch(1, 1), 1)
