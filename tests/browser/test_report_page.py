"""The report in a real browser, from a file, with the network off."""

import pytest
from fabricated import SCRIPT, contents

from replicode.reports.page import page as written


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(written(contents()))
    return path.as_uri()


def lines(page, chart="#chart-risk"):
    """The colours of the lines that are drawn."""
    marks = page.locator(f"{chart} .drawing svg .mark-line path[stroke]")
    return {marks.nth(i).get_attribute("stroke") for i in range(marks.count())}


def drawn(found):
    found.page.wait_for_selector("#chart-infinite.drawn")
    found.page.wait_for_selector("#chart-risk.drawn .mark-line path")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_opens_without_a_word_and_fits(tab, serious, address, width, scheme):
    found = tab(address, width, scheme, offline=True)
    drawn(found)
    page = found.page
    assert page.locator("figure.chart.drawn .drawing svg").count() == 3
    assert page.locator("math").count() > 10
    assert page.locator("math msub mover").count() > 1  # hats, with their subscripts
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#equations math").first.bounding_box()["height"] > 10
    assert serious(page) == {}
    assert found.said == []


def test_lines_are_hidden_and_shown_again(tab, address):
    found = tab(address, offline=True)
    drawn(found)
    page = found.page
    assert lines(page) == {"#0072B2", "#D55E00", "#7D838C"}
    box = page.locator('#chart-risk input[data-series="softmax"]')
    box.uncheck()
    page.wait_for_timeout(100)
    assert lines(page) == {"#D55E00", "#7D838C"}
    box.check()
    page.wait_for_timeout(100)
    assert lines(page) == {"#0072B2", "#D55E00", "#7D838C"}
    dashes = page.locator('#chart-risk .drawing .mark-line path[stroke="#0072B2"]')
    assert {dashes.nth(i).get_attribute("stroke-dasharray") for i in range(dashes.count())} == {"1,0", "5,4"}
    assert found.said == []


def test_hovering_tells_the_number_and_buttons_zoom(tab, address):
    found = tab(address, offline=True)
    drawn(found)
    page = found.page
    area = page.locator("#chart-risk .drawing svg").bounding_box()
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
    page.mouse.move(area["x"] + area["width"] / 2 + 4, area["y"] + area["height"] / 2 + 2)
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "replica symmetry" in page.locator("#vg-tooltip-element").inner_text()
    ticks = page.locator("#chart-risk .drawing .role-axis-label text")
    before = ticks.all_text_contents()
    page.locator("#chart-risk [data-zoom=in]").click()
    page.wait_for_timeout(400)
    assert ticks.all_text_contents() != before
    page.locator("#chart-risk [data-zoom=all]").click()
    page.wait_for_timeout(400)
    assert ticks.all_text_contents() == before
    assert found.said == []


def test_a_script_is_a_name_and_code_is_downloaded(tab, address, tmp_path):
    found = tab(address, offline=True)
    drawn(found)
    page = found.page
    assert SCRIPT in page.locator("h1").inner_text()
    assert page.locator("#chart-risk .legend").get_by_text(SCRIPT).count() == 1
    with page.expect_download() as waiting:
        page.get_by_text("Download attention2.py").click()
    waiting.value.save_as(tmp_path / "code.py")
    assert (tmp_path / "code.py").read_text() == f"# {SCRIPT}\nprint('hello')\n"
    assert found.said == []


def test_print_has_the_static_figures(tab, address):
    found = tab(address, offline=True)
    drawn(found)
    found.page.emulate_media(media="print")
    assert found.page.locator("#chart-risk .static").is_visible()
    assert not found.page.locator("#chart-risk .drawing").is_visible()
    assert found.page.locator("#chart-risk .static").evaluate("e => e.naturalWidth") > 300
    found.page.emulate_media(media="screen")
