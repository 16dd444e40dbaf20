"""Any mixture of cuts, crashes and restarts: the log has no gap, no double, and one end."""

import random

import pytest


@pytest.mark.spec("drop/no-gap-no-duplicate", "restart/no-event-missing")
@pytest.mark.parametrize("seed", range(6))
async def test_a_storm_loses_and_doubles_nothing(line, seed):
    dice = random.Random(seed)
    agent = await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    said, killed = 0, False
    for _ in range(dice.randint(5, 12)):
        match dice.choice(["say", "say", "cut", "crash", "wait"]):
            case "say":
                for _ in range(dice.randint(1, 40)):
                    process.log(str(said))
                    said += 1
            case "cut":
                line.control.cut()
            case "crash":
                await line.control.crash()
                await line.control.start()
            case "wait":
                await line.until(lambda: process.read == said)  # noqa: B023  read at once
    await line.until(lambda: process.read == said)
    if dice.random() < 0.5:
        killed = True
        await agent.kill()
        await line.agent()
    else:
        process.end("succeeded")
    await line.until(lambda: stored.final)
    texts = [item.payload["lines"][0] for item in stored.items if item.type == "log"]
    assert texts == [str(number) for number in range(said)]
    assert stored.kinds.count("accepted") == stored.kinds.count("end") == 1
    assert stored.kinds[-1] == "end"
    assert stored.final == ("interrupted" if killed else "succeeded")
    await line.until(lambda: line.spools() == [])
