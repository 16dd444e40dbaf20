from codefyui_core.cli.run import options_of


def test_the_pool_of_one_shot_agents_is_a_target_of_the_command_line() -> None:
    chosen = {
        "device": "cuda",
        "target": "one-shot",
        "seed": None,
        "deterministic": False,
        "record_outputs": False,
    }
    assert options_of(chosen) == {"device": "cuda", "target": {"pool": "one-shot"}}
    assert options_of({**chosen, "target": "box"})["target"] == "box"
