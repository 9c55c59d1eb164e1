"""The explorer in a real browser: typed text, curves as they come, bad input, and what axe says."""

from urllib.parse import urlencode

import pytest
from served import CHEAP, serving

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server():
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def address(server):
    asked = {"activation": "1 + x", **{n: CHEAP[n] for n in ("tokens", "alpha")}, "bayes": "false", "suite": "false"}
    return f"{server.address}/?{urlencode({**asked, 'alpha': '4:6'})}"


def status(page, text):
    page.locator("#status").get_by_text(text, exact=True).wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.full)])
def test_it_draws_what_the_address_asks_for(tab, serious, address, width, scheme):
    found = tab(address, width, scheme)
    page = found.page
    status(page, "Done.")
    assert page.locator("#properties table").count() == 1
    assert page.locator("#equations math").count() > 5
    assert page.locator("#chart .drawing svg .mark-line path[stroke]").count() >= 1
    assert page.locator("#numbers tbody tr").count() > 3
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious(page) == {}
    assert found.said == []


def test_bad_text_is_shown_with_its_caret_and_never_run(tab, address):
    found = tab(address)
    page = found.page
    status(page, "Done.")
    page.get_by_text("Compare with another").click()
    second = page.get_by_label("activation 2", exact=True)
    second.fill("exp(x")
    second.press("Enter")
    page.locator("#problem pre.caret").wait_for()
    assert "^" in page.locator("#problem pre").inner_text()
    second.fill(SCRIPT)
    second.press("Enter")
    page.locator("#problem").get_by_text("alert(1)").wait_for()
    assert page.locator("#problem script").count() == 0
    page.get_by_label("remove activation 2").click()
    status(page, "Done.")
    assert found.said == []


def test_moving_a_number_computes_again_and_files_are_saved(tab, address, tmp_path):
    found = tab(address)
    page = found.page
    status(page, "Done.")
    before = page.locator("#numbers").inner_text()
    page.locator("#noise").fill("0.5")
    page.locator("#noise").press("Enter")
    page.wait_for_timeout(500)
    status(page, "Done.")
    assert page.locator("#numbers").inner_text() != before
    assert "noise=0.5" in page.url
    with page.expect_download() as waiting:
        page.get_by_text("Solver (.py)").click()
    waiting.value.save_as(tmp_path / "attention.py")
    assert "def solve(" in (tmp_path / "attention.py").read_text()
    assert found.said == []
