"""A real browser for the tests: Debian's chromium, or the one that REPLICODE_CHROMIUM names. Nothing is installed here.

Where there is none the tests are skipped with the words that `make test-browser` prints.
"""

import os
import shutil

import pytest

FOUND = os.environ.get("REPLICODE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no chromium: apt-get install chromium, or REPLICODE_CHROMIUM=/path/to/chromium; then make test-browser"
OFF = ("gpu", "quic", "background-networking", "component-update", "sync")
FLAGS = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in OFF)]


@pytest.fixture(scope="session")
def browser():
    if not FOUND:
        pytest.skip(MISSING)
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as run:
        found = run.chromium.launch(executable_path=FOUND, args=FLAGS)
        yield found
        found.close()


class Tab:
    """A page with what it said: console messages and errors."""

    def __init__(self, page):
        self.page, self.said = page, []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))


@pytest.fixture(scope="module")
def tab(browser):
    """Opens pages in contexts of their own, which are closed at the end: one for each address, width and scheme."""
    opened = {}

    def open_(address, width=1280, scheme="light", **more):
        key = address, width, scheme
        if key not in opened:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
            opened[key] = Tab(context.new_page())
            opened[key].page.set_default_timeout(60_000)
            opened[key].page.goto(address)
        return opened[key]

    yield open_
    for found in opened.values():
        found.page.context.close()


@pytest.fixture(scope="session")
def serious():
    """What axe finds that is serious or critical, on a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()

    def found(page):
        violations = axe.run(page).response["violations"]
        return {
            v["id"]: [node["html"][:120] for node in v["nodes"]][:3]
            for v in violations
            if v["impact"] in ("serious", "critical")
        }

    return found
