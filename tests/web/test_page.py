"""What a person sees and does on the page, in a real browser before a real server."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.service, pytest.mark.needs("chromium")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn.graph.json"


def submit(server, graph, name):
    return server.post("/api/runs", {"graph": graph, "name": name})["run_id"]


def row_of(page, run_id):
    return page.locator(f'#runs tr[data-run="{run_id}"]')


def status_of(page, run_id):
    return row_of(page, run_id).locator(".pill")


@pytest.fixture
def held(server, sites, tmp_path):
    """A run that goes on until its file is there; it is let go in any case."""
    file = tmp_path / "go"
    run_id = submit(server, sites.graph("TrialHold", {"file": str(file)}), "held")
    yield run_id, file
    file.touch()
    sites.wait_for(lambda: not server.get(f"/api/runs/{run_id}")["active"], 60, "the run to end")


def test_runs_and_workers_appear_and_change_while_one_looks(server, sites, open_page):
    page = open_page()
    expect(page.locator("#health")).to_contain_text("ready")
    expect(page.locator("#no-workers")).to_be_visible()
    run_id = submit(server, sites.graph("TrialCount", {"n": 5}), "five")
    expect(status_of(page, run_id)).to_have_text("succeeded")
    expect(row_of(page, run_id)).to_contain_text("five")
    token = server.enroll_token()
    enrolled = {"token": token, "name": "box", "nonce": "n" * 16, "machine_id": "m", "platform": "linux"}
    server.post("/api/workers/enroll", enrolled)
    expect(page.locator("#workers tbody tr")).to_contain_text(["box"])
    server.api().call("DELETE", "/api/workers/box")
    expect(page.locator("#workers tbody tr")).to_have_count(0)


def test_choosing_a_run_shows_its_metrics_files_and_log(server, sites, open_page, tmp_path):
    graph = json.loads(EXAMPLE.read_text())
    for node in graph["nodes"]:
        params = node["data"].get("params", {})
        params.update({"epochs": 3} if "epochs" in params else {})
    run_id = submit(server, graph, "digits")
    page = open_page()
    row_of(page, run_id).click()
    expect(page.locator("#detail-title")).to_contain_text("digits")
    expect(page.locator("#detail-title .pill")).to_have_text("succeeded", timeout=120_000)
    expect(page.locator("figure", has_text="train_loss").locator("polyline")).to_have_attribute(
        "points", re.compile(r"^0\.00,\S+ 50\.00,\S+ 100\.00,\S+$")
    )
    expect(page.locator("#log")).to_contain_text("parameters")
    link = page.locator("#artifacts a").last
    with page.expect_download() as download:
        link.click()
    saved = tmp_path / "file"
    download.value.save_as(saved)
    assert saved.stat().st_size > 1000
    expect(row_of(page, run_id)).to_contain_text("%")


def test_a_run_is_stopped_by_its_button(server, open_page, held):
    run_id, _ = held
    page = open_page()
    expect(status_of(page, run_id)).to_have_text("running")
    row_of(page, run_id).get_by_role("button", name="Stop").click()
    expect(status_of(page, run_id)).to_have_text("cancelled")
    expect(row_of(page, run_id).get_by_role("button")).to_have_count(0)
    expect(page.locator("#problem")).to_be_hidden()
    assert server.get(f"/api/runs/{run_id}")["status"] == "cancelled"


def test_the_keyboard_reaches_runs_and_keeps_its_place_while_rows_change(server, sites, open_page, held):
    run_id, _ = held
    page = open_page()
    row = row_of(page, run_id)
    expect(status_of(page, run_id)).to_have_text("running")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_contain_text("held")
    other = submit(server, sites.graph("TrialCount", {"n": 1}), "another")
    expect(status_of(page, other)).to_have_text("succeeded")
    expect(row).to_be_focused()
    expect(page.locator("#log")).to_contain_text("holding in")


def test_what_the_server_refuses_is_shown_and_goes_away(server, open_page, held):
    run_id, _ = held
    page = open_page()
    expect(status_of(page, run_id)).to_have_text("running")
    page.route(
        "**/cancel", lambda route: route.fulfill(status=409, json={"detail": "Not <b>now</b>.", "code": "x"})
    )
    row_of(page, run_id).get_by_role("button", name="Stop").click()
    expect(page.locator("#problem")).to_have_text("Not <b>now</b>.")


def test_names_are_text_and_never_markup(server, sites, open_page):
    name = "<img src=x onerror=alert(1)>"
    run_id = submit(server, sites.graph("TrialCount", {"n": 1}), name)
    page = open_page()
    expect(row_of(page, run_id)).to_contain_text(name)
    row_of(page, run_id).click()
    expect(page.locator("#detail-title")).to_contain_text(name)
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_of_any_window(server, sites, open_page, width):
    run_id = submit(server, sites.graph("TrialCount", {"n": 3}), "a name that goes on and on " * 2)
    page = open_page(viewport={"width": width, "height": 800})
    row_of(page, run_id).click()
    expect(page.locator(".chart svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.evaluate(
        "[...document.querySelectorAll('#detail *, header *')].every((e) => e.getBoundingClientRect().right <= innerWidth)"
    )


def test_dark_and_light_follow_the_system(open_page):
    def luminance(scheme):
        page = open_page(color_scheme=scheme)
        colors = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        return [sum(int(n) for n in color[color.index("(") + 1 : -1].split(",")[:3]) for color in colors]

    light, dark = luminance("light"), luminance("dark")
    assert light[0] > 600
    assert light[1] < 200
    assert dark[0] < 200
    assert dark[1] > 600


def test_after_a_restart_of_the_server_the_page_has_everything_once(server, sites, open_page):
    run_id = submit(server, sites.graph("TrialCount", {"n": 3}), "before")
    page = open_page()
    expect(status_of(page, run_id)).to_have_text("succeeded")
    row_of(page, run_id).click()
    expect(page.locator("figure figcaption")).to_have_count(1)
    before = page.locator("#runs tbody tr").count()
    server.server.terminate()
    expect(page.locator("#health")).to_have_text("reconnecting")
    server.start_server()
    expect(page.locator("#health")).to_contain_text("ready")
    after = submit(server, sites.graph("TrialCount", {"n": 3}), "after")
    expect(status_of(page, after)).to_have_text("succeeded")
    expect(page.locator("#runs tbody tr")).to_have_count(before + 1)
    expect(page.locator("figure figcaption")).to_have_count(1)
    expect(page.locator(".scale span")).to_have_text("3 points")
    row_of(page, after).click()
    expect(page.locator("#detail-title")).to_contain_text("after")
