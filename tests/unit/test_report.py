"""The report page: equations as MathML, rows of the charts, and one file in which every text is escaped."""

import html
import json
import re
from html.parser import HTMLParser

import pytest
import sympy as sp
from click.testing import CliRunner
from fabricated import SCRIPT, VALUES, contents, curve

import replicode as rc
from replicode.cli import main
from replicode.reports import charts, mathematics
from replicode.reports.contents import renamed, signals
from replicode.reports.page import page
from replicode.reports.settled import settled


@pytest.fixture(scope="module")
def written():
    return page(contents())


class _Texts(HTMLParser):
    """The elements of a page, what their attributes are, and what scripts hold."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1] += data


def test_hats_and_subscripts_are_elements_and_the_alternative_is_words():
    (found,) = mathematics.named_equations({"mh_k": sp.Symbol("qh_v") ** 2})
    assert '<msub><mover accent="true"><mi>m</mi>' in found.mathml
    assert 'alttext="m-hat_k = q-hat_v^2"' in found.mathml
    assert "\\" not in found.mathml


def test_a_long_sum_is_broken_between_its_terms():
    terms = [sp.Symbol(f"P_{i}") * sp.Symbol(f"T_{i}") ** 2 / 7 for i in range(30)]
    found = mathematics.equation("f", "f", sp.Add(*terms))
    assert len(found.rows) > 1 and found.wide
    assert found.mathml.count("<mtr>") == len(found.rows)
    assert mathematics.Equation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_every_name_of_the_notation_is_typeset():
    from replicode.theory.typeset.notation import _NAMES, tex

    for name in _NAMES:
        found = mathematics.inline(tex(name), name)
        assert "\\" not in found.replace("\\u", ""), name


def test_lines_are_dashed_where_symmetry_breaks_and_parted_at_a_jump():
    rows = [r for r in charts.curve_rows(curve(("softmax", "linear"))) if r["series"] == "softmax"]
    runs = {run: [r for r in rows if r["run"] == run] for run in dict.fromkeys(r["run"] for r in rows)}
    assert [(r[0]["kind"], [p["at"] for p in r]) for r in runs.values()] == [
        ("broken", [1.0, 2.0, 3.0]),
        ("stable", [3.0, 4.0]),
        ("stable", [5.0, 6.0]),
        ("trained", [2.0, 6.0]),
    ]
    assert runs["softmax 1"][0]["says"] == "0.850(1)"


def test_a_value_that_is_not_finite_is_not_drawn():
    found = curve(("softmax",))
    broken = {
        **found.activations["softmax"],
        "test_risk": (float("nan"), *found.activations["softmax"]["test_risk"][1:]),
    }
    rows = charts._theory("softmax", VALUES, broken, ())
    assert rows[0]["at"] == 2.0
    assert "NaN" not in json.dumps(rows)


def test_names_are_data_and_no_part_of_an_expression():
    rows = charts.curve_rows(curve(("softmax", SCRIPT)))
    spec = charts.chart(rows, ["softmax", SCRIPT], "alpha", charts.RISK, True, "words")
    bare = {**spec, "data": None, "encoding": None}
    assert SCRIPT not in json.dumps(bare)


def test_the_page_is_one_file_that_fetches_nothing(written):
    found = _Texts()
    found.feed(written)
    links = [
        a.get("src") or a.get("href") for tag, a in found.tags if tag != "math" and (a.get("src") or a.get("href"))
    ]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert not [a for tag, a in found.tags if tag in ("link", "iframe", "object")]
    assert len(written.encode()) < 2_500_000
    assert page(contents()) == written  # the same contents, the same bytes


def test_a_name_with_a_script_stays_text(written):
    found = _Texts()
    found.feed(written)
    assert html.escape(SCRIPT) in written
    assert SCRIPT not in written
    assert not any("alert(1)" in script and not script.startswith("{") for script in found.scripts)


def test_the_policy_lets_in_the_own_scripts_by_hash(written):
    import base64
    import hashlib

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', written)
    found = _Texts()
    found.feed(written)
    runs = [s for s in found.scripts if not s.startswith("{")]
    assert len(runs) == 3 and "unsafe-inline" not in policy.partition("style-src")[0]
    for script in runs:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in html.unescape(policy)


def test_warnings_come_first_and_tables_have_headers(written):
    assert written.index("replica symmetry is broken at nodes") < written.index("<h2>Finite samples")
    assert '<td class="failed">failed</td>' in written
    shown = written.partition("<script>")[0]
    assert shown.count("<caption>") == shown.count("<table") > 3
    assert "c = 0.25 for softmax" in written


def test_parameters_without_a_value_are_the_best_with_infinite_data():
    found = settled(["linear", "c + x"], "spiked", 1, "1:4", {})
    assert found[0].as_argument == "linear" and not found[0].chosen
    best = rc.population("c + x", tokens=1, nu=2.0).parameters["c"]
    assert found[1].chosen == {"c": pytest.approx(best)}
    assert settled(["c + x"], "spiked", 1, 2, {"c": 0.5})[0].values == {"c": 0.5}
    with pytest.raises(rc.InputError, match="param"):
        settled(["linear"], "spiked", 1, 2, {"c": 0.5})
    with pytest.raises(rc.InputError, match="each once"):
        settled(["linear", "linear"], "spiked", 1, 2, {})


def test_signals_hold_the_value_that_was_asked_for():
    assert 2.0 in signals(2.0) and signals("1:4")[0] == 1.0
    assert signals(float("inf")) == [float("inf")]


def test_curves_are_known_by_the_names_that_were_given():
    found = renamed(curve(("exp(x)", "1 + x")), ["first", "second"])
    assert list(found.activations) == list(found.nodes) == ["first", "second"]
    assert list(found.trained) == ["first"]


def test_the_command_takes_the_options_of_curve():
    from replicode.commands.curve import command as curve_command
    from replicode.commands.report import NOT_YET, command

    assert {p.name for p in curve_command.params} - set(NOT_YET) == {p.name for p in command.params} - set(NOT_YET)
    run = CliRunner().invoke(main, ["report", "softmax", "--alpha", "2", "-o", "never.html"])
    assert run.exit_code == 2 and "range" in run.output


def test_the_command_writes_the_page(monkeypatch, tmp_path):
    asked = {}
    made = contents()
    monkeypatch.setattr("replicode.reports.contents.contents", lambda acts, say, given: asked.update(given) or made)
    run = CliRunner().invoke(main, ["report", "softmax", "--param", "c=0.5", "-o", str(tmp_path / "r.html")])
    assert run.exit_code == 1, run.output  # the page has a warning
    assert asked["parameters"] == {"c": "0.5"} and (asked["alpha"], asked["tokens"]) == ("1:10", "2")
    assert "</html>" in (tmp_path / "r.html").read_text()


def test_another_model_is_refused_for_the_page_states_the_default():
    with pytest.raises(rc.Refusal, match="loss"):
        rc.report("softmax", output="never.html", loss="absolute")


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    run = CliRunner().invoke(main, ["report", "softmax", "-o", str(tmp_path / "r.html")])
    assert run.exit_code == 2 and "pip install 'replicode[report]'" in run.output
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_three_activations_make_a_page_below_five_megabytes(tmp_path):
    acts = ("softmax", "linear", "1+erf(c+x)")
    found = rc.report(*acts, output=tmp_path / "report.html", tokens=2)
    assert found.bytes < 5_000_000 and found.ok and list(found.signatures) == list(acts)
    assert "replicode report softmax linear" in (tmp_path / "report.html").read_text()
