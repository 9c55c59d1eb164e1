"""Golden files of the derived part of generated modules, and that generation is deterministic.

REPLICODE_UPDATE_GOLDEN=1 rewrites the golden files; read the difference before it is committed.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from replicode.codegen.compiler import generate
from replicode.theory.language.activation import register, registered
from replicode.theory.derive.bayes import derive_bayes
from replicode.theory.derive.dynamics import derive_dynamics
from replicode.theory.derive.population import derive_population
from replicode.theory.derive.rsb import derive_step
from replicode.theory.derive.saddle import derive
from replicode.theory.model import STRUCTURED_MODEL
from replicode.theory.language.losses import model_of

GOLDEN = Path(__file__).parent
RUNTIME_STARTS = ("\n# What belongs to one number of tokens", "\n# Quadrature nodes", "\n# Checks of the arguments")
CASES = {
    "softmax_2.txt": ("softmax", 2),
    "linear_3.txt": ("linear", 3),
    "relu_2.txt": ("relu", 2),
    "max_2.txt": ("softmax", 2, "max"),
    "lengths.txt": ("linear", "1:0.25,2:0.75"),
    "structured_2.txt": ("softmax", 2, "spiked", STRUCTURED_MODEL),
    "huber_2.txt": ("softmax", 2, "spiked", model_of("huber:1")),
    "logistic_sign.txt": ("linear", "1:0.5,2:0.5", "spiked", model_of("logistic", "sign")),
    "step_softmax_2.txt": ("softmax", 2, "spiked", None, lambda *of: derive_step(derive(*of))),
    "bayes_spiked_2.txt": ("spiked", 2, None),
    "bayes_max_2.txt": ("max", 2, None),
    "dynamics_softmax_2.txt": ("softmax", 2, "spiked", None, derive_dynamics),
    "population_softmax_2.txt": ("softmax", 2, "spiked", None, derive_population),
}


def _source(text, tokens, task="spiked", model=None, level=derive):
    """Without a task the text is one, of the Bayes-optimal level."""
    return generate(level(text, task, tokens, model) if task else derive_bayes(text, tokens)).source


@pytest.fixture(scope="module")
def sources():
    return {case: _source(*case) for case in CASES.values()}


def _derived_part(source):
    """What comes before the run-time source, without what depends on run-time source and on versions."""
    starts = [source.find(start) for start in RUNTIME_STARTS if start in source]
    derived = source[: min(starts)]
    imports = re.compile(r"^(?:from|import) .*\n", re.MULTILINE)
    derived = imports.sub("", derived)
    derived = re.sub(r"\b[0-9a-f]{64}\b", "SIGNATURE", derived)
    return re.sub(r"'versions': \{[^}]*\}", "'versions': VERSIONS", derived)


@pytest.mark.parametrize("name", CASES)
def test_golden(name, sources):
    path = GOLDEN / name
    derived = _derived_part(sources[CASES[name]])
    if os.environ.get("REPLICODE_UPDATE_GOLDEN") == "1":
        path.write_text(derived, encoding="utf-8")
    assert derived == path.read_text(encoding="utf-8"), "see REPLICODE_UPDATE_GOLDEN in this file's docstring"


def test_generating_twice_gives_the_same_bytes(sources):
    assert _source("softmax", 2) == sources["softmax", 2]
    assert _source("max", 2, None) == sources["max", 2, None]


SEVERAL_SUMS = "exp(x)/(sum(exp(x)) + c*mean(x**2) + mean(tanh(x - mean(x))) + 2)"  # there is an order to get wrong


def test_other_processes_give_the_same_bytes(sources):
    program = (
        "import sys; from replicode.codegen.compiler import generate; from replicode.theory.derive.saddle import derive; "
        "[sys.stdout.buffer.write(generate(derive(t, 'spiked', 2)).source.encode()) for t in sys.argv[1:]]"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, "softmax", SEVERAL_SUMS],
        cwd=GOLDEN.parent.parent,
        env={**os.environ, "PYTHONHASHSEED": "4711"},  # that of this process is another
        capture_output=True,
        check=True,
    )
    assert run.stdout.decode() == sources["softmax", 2] + _source(SEVERAL_SUMS, 2)


def _unnamed(source):
    """The source without the activation's name, which stands in its first line and in METADATA."""
    lines = source.split("\n")
    assert lines[0].startswith('"""Replica theory of ')
    names = [i for i, line in enumerate(lines) if line.strip().startswith("'name': ")]
    assert len(names) == 1
    return [line for i, line in enumerate(lines) if i not in (0, *names)]


@pytest.fixture
def twin(monkeypatch):
    """Registers an activation under another name for one test."""
    import replicode.theory.language.activation as module

    monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))
    return register


@pytest.mark.parametrize("name, text", [("softmax", "exp(x)/sum(exp(x))"), ("erf", "1 + erf(c + x)")])
def test_the_name_does_not_matter(name, text, sources, twin):
    expected = sources.get((name, 2)) or _source(name, 2)
    twin("a_twin", text)
    assert "a_twin" in registered()
    for other in (text, "a_twin"):
        source = _source(other, 2)
        assert source != expected
        assert _unnamed(source) == _unnamed(expected)


def test_imports_of_a_generated_module(sources):
    """The standard library, NumPy and SciPy; lazy imports inside functions count as well."""
    allowed = {*sys.stdlib_module_names, "numpy", "scipy"}
    for source in sources.values():
        tree = ast.parse(source)
        named = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        named |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {n.split(".")[0] for n in named} <= allowed
        assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
