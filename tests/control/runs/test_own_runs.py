"""Runs of the server itself, from submit to their end."""

import pytest

from codefyui_core.errors import CodefyError


async def test_a_run_goes_from_the_queue_to_its_end(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    assert await room.status(run_id) == "running"
    process.say(type_="execution_start", run_id=run_id)
    process.say(type_="node_status", node_id="make", status="completed")
    process.finish()
    row = await room.becomes(run_id, "succeeded")
    assert await room.types(run_id) == ["execution_start", "node_status", "execution_complete"]
    assert row["error"] is None
    assert row["cause"] is None
    assert row["exit_code"] == 0
    assert row["peak_memory_bytes"] == 1000
    assert row["stderr_tail"] == ["last words"]
    assert row["started_at"] <= row["finished_at"]
    assert row["active"] is False
    assert row["queue_key"] == "server/cpu"
    assert row["devices"] == ["cpu"]


async def test_go_carries_the_document_the_options_and_the_folders(room):
    run_id = await room.submit(seed=7, verbose=True)
    go = (await room.process(run_id)).go_message
    assert go.document["nodes"][0]["id"] == "start"
    assert go.options["seed"] == 7
    assert go.options["verbose"] is True
    assert "target" not in go.options
    assert go.device == "cpu"
    assert go.folders.data.endswith("data")


async def test_a_failure_keeps_its_error_and_cause(room):
    run_id = await room.submit()
    (await room.process(run_id)).finish("failed", error="make: too small", cause="cuda_oom")
    row = await room.becomes(run_id, "failed")
    assert (row["error"], row["cause"]) == ("make: too small", "cuda_oom")
    last = (await room.log(run_id))[-1]
    assert (last["type"], last["payload"]["error"]) == ("execution_error", "make: too small")


async def test_a_process_that_ends_without_a_word_has_failed(room):
    run_id = await room.submit()
    (await room.process(run_id)).finish(None, exit_code=3)
    row = await room.becomes(run_id, "failed")
    assert (row["error"], row["cause"]) == ("run subprocess exited with code 3", "user_code")


async def test_one_that_the_kernel_ended_says_so(room):
    run_id = await room.submit()
    (await room.process(run_id)).finish(None, exit_code=None, signal=9, out_of_memory=True)
    assert (await room.becomes(run_id, "failed"))["cause"] == "host_oom"


async def test_cancelling_a_run_stops_its_process(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    answer = await room.service.cancel(run_id)
    assert answer == {"run_id": run_id, "status": "running", "cancelled": True}
    row = await room.becomes(run_id, "cancelled")
    assert process.stops == [10.0]
    assert row["cause"] == "cancelled"
    assert (await room.log(run_id))[-1]["payload"]["reason"] == "cancelled"
    again = await room.service.cancel(run_id)
    assert again == {"run_id": run_id, "status": "cancelled", "cancelled": False}


async def test_a_result_that_was_written_stands_whatever_stop_came_meanwhile(room):
    room.starter.stubborn = True
    run_id = await room.submit()
    process = await room.process(run_id)
    await room.service.cancel(run_id)
    process.finish("succeeded")
    assert (await room.becomes(run_id, "succeeded"))["stop_requested"] is False


async def test_a_waiting_run_is_cancelled_without_a_start(room):
    first = [await room.submit() for _ in range(2)]
    waiting = await room.submit()
    for run_id in first:
        await room.process(run_id)
    assert (await room.row(waiting))["queue_position"] == 1
    answer = await room.service.cancel(waiting)
    assert answer["status"] == "cancelled"
    row = await room.row(waiting)
    assert row["started_at"] is None
    assert await room.types(waiting) == ["execution_stopped"]


async def test_two_runs_share_the_cpu_and_the_rest_wait_in_order(room):
    runs = [await room.submit() for _ in range(5)]
    for run_id in runs[:2]:
        await room.process(run_id)
    rows = [await room.row(run_id) for run_id in runs]
    assert [row["status"] for row in rows] == ["running"] * 2 + ["queued"] * 3
    assert [row["queue_position"] for row in rows] == [None, None, 1, 2, 3]
    assert rows[2]["queue_reason_code"] == "queue.slot_busy"
    room.starter.processes[runs[0]].finish()
    await room.process(runs[2])
    assert (await room.row(runs[3]))["queue_position"] == 1


async def test_events_keep_their_order_through_many_batches(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    for number in range(3000):
        process.say(number=number)
    process.finish()
    await room.becomes(run_id, "succeeded")
    numbers = [
        one["payload"]["number"] async for one in room.service.watch(run_id, 0) if one["type"] == "log"
    ]
    assert numbers == list(range(3000))


async def test_metrics_become_rows_and_odd_numbers_keep_their_names(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    points = [
        {"name": "train_loss", "value": 0.5, "step": 1, "node_id": "n"},
        {"name": "train_loss", "value": 0.25, "step": 1, "node_id": "n"},
        {"name": "lr", "value": {"__float__": "nan"}, "step": 2, "node_id": "n"},
        {"name": "big", "value": {"__float__": "-inf"}, "step": 2**70, "node_id": None},
    ]
    process.say(type_="metric", points=points)
    process.finish()
    row = await room.becomes(run_id, "succeeded")
    found = await room.service.metrics(run_id)
    assert found["names"] == ["train_loss", "lr", "big"]
    values = [(one["name"], one["value"], one.get("special"), one["step"]) for one in found["metrics"]]
    assert values == [
        ("train_loss", 0.5, None, 1),
        ("train_loss", 0.25, None, 1),
        ("lr", None, "nan", 2),
        ("big", None, "-inf", None),
    ]
    assert row["final_metrics"] == {"train_loss": 0.25, "lr": None, "big": None}


async def test_an_artifact_is_listed_exactly_when_its_event_is(room, tmp_path):
    run_id = await room.submit()
    process = await room.process(run_id)
    place = tmp_path / "backend" / "data" / "models" / "a.pt"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"12345")
    told = {
        "artifact_id": "a1",
        "kind": "checkpoint",
        "path": str(place),
        "meta": {"epoch": 1},
        "node_id": "n",
    }
    process.say(type_="artifact", **told)
    process.say(type_="artifact", **told)
    process.finish()
    await room.becomes(run_id, "succeeded")
    (row,) = await room.service.artifacts(run_id)
    assert (row["id"], row["backend"], row["state"]) == ("a1", "local", "stored")
    assert (row["relative_path"], row["size_bytes"]) == ("models/a.pt", 5)
    assert row["path"] == str(place)
    assert (await room.types(run_id)).count("artifact") == 1
    assert await room.service.artifacts(run_id, "image") == []


async def test_a_process_that_is_lost_before_its_go_is_made_once_more(room):
    room.starter.failures = [CodefyError("gone", code="run.process_lost")]
    run_id = await room.submit()
    (await room.process(run_id)).finish()
    await room.becomes(run_id, "succeeded")


@pytest.mark.parametrize(
    "failure", [CodefyError("no process to be had", code="run.process_lost"), RuntimeError("a bug")]
)
async def test_a_run_that_cannot_be_started_has_failed_and_gives_its_slot_back(room, failure):
    room.starter.failures = [failure, failure]
    run_id = await room.submit()
    row = await room.becomes(run_id, "failed")
    assert str(failure) in row["error"]
    assert row["cause"] is not None
    room.starter.failures = []
    (await room.process(await room.submit())).finish()


async def test_an_unreadable_line_is_an_event_and_not_an_end(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    process.say_raw(b"not json")
    process.say_raw(b'{"kind": "end", "payload": {"outcome": "succeeded"}}')
    process.say(text="after")
    process.finish()
    await room.becomes(run_id, "succeeded")
    assert await room.types(run_id) == ["event_unstorable", "event_unstorable", "log", "execution_complete"]


async def test_a_run_cannot_write_its_own_closing_event(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    process.say(type_="execution_complete")
    process.finish("failed", error="no")
    await room.becomes(run_id, "failed")
    assert await room.types(run_id) == ["event_unstorable", "execution_error"]


async def test_the_environment_of_a_run_becomes_its_facts(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    process.say(line="environment", fingerprint="abc", resolved={"numerics": {"tf32": False}})
    process.say(line="environment", seed=4)
    process.finish()
    facts = (await room.becomes(run_id, "succeeded"))["execution_facts"]
    assert facts["fingerprint"] == "abc"
    assert facts["fingerprint_source"] == "run"
    assert facts["resolved"] == {"numerics": {"tf32": False}}
    assert facts["seed"] == 4


async def test_a_card_that_is_not_there_becomes_the_cpu_with_a_warning(room):
    run_id = await room.submit(device="cuda:3")
    await room.process(run_id)
    row = await room.row(run_id)
    assert (row["device"], row["devices"]) == ("cuda:3", ["cpu"])
    assert await room.warnings(run_id) == ["device_unavailable"]


async def test_auto_takes_the_best_kind_and_the_card_that_is_used_least(room, kit):
    cards = [kit.device("cpu"), kit.device("cuda:0", uuid="GPU-a"), kit.device("cuda:1", uuid="GPU-b")]
    room.catalog.devices = tuple(cards)
    runs = [await room.submit(device="auto") for _ in range(3)]
    given = []
    for run_id in runs[:2]:
        process = await room.process(run_id)
        assert process.go_message.device == "cuda:0"
        given.append(process.launch.env["CUDA_VISIBLE_DEVICES"])
    assert sorted(given) == ["GPU-a", "GPU-b"]
    assert await room.status(runs[2]) == "queued"


async def test_interactive_runs_skip_the_line_up_to_their_own_limit(room):
    for _ in range(2):
        await room.process(await room.submit())
    canvas = [await room.submit(lane="interactive") for _ in range(2)]
    for run_id in canvas:
        await room.process(run_id)
    with pytest.raises(CodefyError) as refused:
        await room.submit(lane="interactive")
    assert refused.value.code == "server.busy"
