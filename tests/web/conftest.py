"""A browser before a server of its own."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

SITE = Path(__file__).parents[1] / "e2e" / "site.py"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WITHIN_MS = 30_000


@pytest.fixture(scope="session")
def sites():
    """The module with the processes of whole systems; test folders aren't packages."""
    spec = importlib.util.spec_from_file_location("site_for_web", SITE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(sites, tmp_path_factory):
    """Started once for the tests of one module."""
    site = sites.Site(root=tmp_path_factory.mktemp("web"), settings={})
    try:
        site.start_server()
        site.keep_port()
        yield site
    finally:
        site.aclose()


@pytest.fixture(scope="module")
def chromium():
    """Of one module alone: while it is open, its loop counts as the thread's running one, and asynchronous tests
    in the same process couldn't run.
    """
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "Chromium isn't installed; on Debian: apt-get install chromium"
    expect.set_options(timeout=WITHIN_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, server):
    """Pages of the server; none of them may complain."""
    opened, complaints = [], []

    def open_(**context):
        made = chromium.new_context(**context)
        opened.append(made)
        made.set_default_timeout(WITHIN_MS)
        page = made.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        return page

    yield open_
    for context in opened:
        context.close()
    assert complaints == []
