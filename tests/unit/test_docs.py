"""The documentation: every link leads somewhere, every command line is one that is understood, blocks of code run.

A block after `<!-- slow -->` runs in `make test-full` only. Lines of the shell that are not `replicode` are not run.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from replicode.cli import VERBS, main
from replicode.verbs.derive import derivation_of
from replicode.verbs.solve import solve

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(<!-- slow -->\n)?```(\w+)\n(.*?)^```$", re.M | re.S)


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(language, slow):
    """The fenced blocks of a language, page by page."""
    for page in PAGES:
        for number, (mark, found, body) in enumerate(FENCE.findall(page.read_text()), 1):
            if found == language and bool(mark) == slow:
                yield pytest.param(body, id=f"{name_of(page)}:{number}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    for target in LINK.findall(page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http://", "https://")) or path.startswith("generated/"):
            continue
        found = (page.parent / path) if path else page
        assert found.exists(), f"{name_of(page)}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", found.read_text(), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", t).strip().lower().replace(" ", "-") for t in titles], target


def command_lines(page):
    """The lines of code blocks, fenced or indented, that call `replicode` with arguments."""
    for line in re.findall(r"^ *(?:\$ )?(replicode +[a-z].*)$", page.read_text(), re.M):
        line = re.sub(r"\s+#.*$|\s{2,}\[--.*$", "", line)
        if not re.search(r"\[-|\.\.\.|CONFIG|FOLDER|ACTIVATION|HOST|`", line):
            yield line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_line_is_understood(page):
    """Verb, arguments and options are parsed, and nothing is run."""
    for line in command_lines(page):
        verb, *arguments = shlex.split(line)[1:]
        assert verb in VERBS, line
        command = main.get_command(click.Context(main), verb)
        command.make_context(verb, arguments)


def test_wrong_command_lines_are_seen():
    command = main.get_command(click.Context(main), "solve")
    with pytest.raises(click.UsageError):
        command.make_context("solve", ["softmax", "--no-such-option", "1"])
    assert len([line for page in PAGES for line in command_lines(page)]) > 60


def run_shell(body, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "docs").mkdir()
    for line in body.splitlines():
        if line.startswith("replicode "):
            done = CliRunner().invoke(main, shlex.split(line)[1:])
            assert done.exit_code in (0, 1), f"{line}\n{done.stderr}"
            assert done.exit_code == 0 or "warning" in done.stderr, line


def run_python(body, folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(body, "block", "exec"), {"__name__": "block"})


QUICK = ("README.md:3", "docs/howto.md:4", "docs/modules.md:1", "docs/tutorial.md:3")


def in_full(found):
    return pytest.param(*found.values, id=found.id, marks=pytest.mark.full)


SHELL = [p if p.id in QUICK else in_full(p) for p in blocks("sh", False)] + [in_full(p) for p in blocks("sh", True)]


@pytest.mark.parametrize("body", SHELL)
def test_blocks_of_commands_run(body, tmp_path, monkeypatch):
    run_shell(body, tmp_path, monkeypatch)


PLAIN = [p for p in blocks("python", False) if "replicode_properties" not in p.values[0]]


@pytest.mark.parametrize("body", [p if "modules" in p.id else in_full(p) for p in PLAIN])
def test_blocks_of_python_run(body, tmp_path, monkeypatch):
    run_python(body, tmp_path, monkeypatch)


def test_the_example_of_the_readme_is_what_is_printed():
    """Every line of the block that the README explains."""
    printed = CliRunner().invoke(main, shlex.split("solve softmax --tokens 2 --alpha 4 --nu 2 --noise 0.3")).stdout
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"(?:^    .+\n)+", readme[readme.index("    test_risk") :], re.M).group()
    lines = [line.strip() for line in block.splitlines() if line.strip() != "..."]
    assert len(lines) > 15 and [line for line in lines if line not in printed.replace("  m_k", "m_k")] == []


def test_json_keys_are_those_of_the_page():
    page = (ROOT / "docs" / "json.md").read_text()
    said = {verb: set(keys.split()) for verb, keys in re.findall(r"^\| `(\w+)` \| `([^`]+)` \|$", page, re.M)}
    solved = solve("1 + x", tokens=1, alpha=2, nu=1, digits=3).to_dict()
    assert said["solve"] <= set(solved)
    assert said["derive"] == set(derivation_of("1 + x", "spiked", 1)["json"]) - {"asked", "version"}


def test_every_verb_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{verb}`" in readme for verb in VERBS)


def test_the_version_is_said_once():
    import replicode

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "replicode.__version__"}
    assert re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M).group(1) == replicode.__version__


@pytest.mark.full
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += [str(ROOT / "docs"), str(tmp_path)]
    own = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=own)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "generated" / "commands.html").read_text()
    assert all(f"replicode {verb}" in page for verb in VERBS)
    assert "replica trick" in (tmp_path / "generated" / "derivation.html").read_text()
