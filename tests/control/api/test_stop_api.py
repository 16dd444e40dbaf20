"""What a stop would do is asked before it is asked for."""


async def test_a_stop_says_before_it_what_becomes_of_the_runs(app):
    await app.running()
    row = (await app.ask("GET", "/api/server/stop")).json
    assert (row["own"], row["on_workers"], row["waiting"]) == (1, 0, 0)
    assert row["if_kept"] == row["if_stopped"] == ["1 run(s) of this server end interrupted."]
    assert not app.plane.stop_asked.is_set()
