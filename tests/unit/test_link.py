"""The linker: what a generated module holds, for every kind of activation, task and mixture of lengths."""

import ast
import builtins
import dis
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import CodeType

import pytest

from replicode.codegen.compiler import generate
from replicode.codegen.emit.numpy import numpy_module
from replicode.codegen.ir import Level, ModuleIR, Provenance
from replicode.codegen.link import MAIN, chosen, defined, linked, part, top_level
from replicode.codegen.lower.bayes import LEVEL as BAYES
from replicode.codegen.lower.dynamics import LEVEL as DYNAMICS
from replicode.codegen.lower.module import LEVEL as TRAINED
from replicode.codegen.lower.population import LEVEL as POPULATION
from replicode.codegen.lower.rsb import LEVEL as STEP
from replicode.theory.derive.bayes import derive_bayes
from replicode.theory.derive.dynamics import derive_dynamics
from replicode.theory.derive.population import derive_population
from replicode.theory.derive.rsb import derive_step
from replicode.theory.derive.saddle import derive
from replicode.theory.language.losses import model_of
from replicode.theory.model import STRUCTURED_MODEL

ROOT = Path(__file__).parents[2]
CASES = {
    "softmax": ("softmax", "spiked", 2),
    "linear": ("linear", "spiked", 2),
    "erf": ("erf", "spiked", 2),
    "relu": ("relu", "spiked", 2),
    "poly2": ("poly2", "spiked", 2),
    "largest": ("softmax", "max", 2),
    "weighted": ("linear", "nu*tanh(x)", 2),
    "lengths": ("softmax", "spiked", "1:0.2,2:0.3,3:0.5"),
    "structured": ("softmax", "spiked", 2, STRUCTURED_MODEL),
    "loss": ("softmax", "spiked", 2, model_of("huber:1")),
    "labels": ("softmax", "spiked", "1:0.5,2:0.5", model_of("logistic", "sign")),
    "regression": ("1", "spiked", 1, model_of("absolute", "outliers:0.1:3")),
    "many": ("softmax", "spiked", 16),
    "sampled": ("relu", "nu*x + tanh(x) - log(sum(exp(nu*x + tanh(x))))", "1:0.5,2:0.5"),
    "dynamics": ("softmax", "spiked", 2),
    "dynamics_largest": ("erf", "max", "1:0.5,2:0.5"),
    "dynamics_weighted": ("linear", "nu*tanh(x)", 2),
    "dynamics_loss": ("softmax", "spiked", 2, model_of("logistic", "sign")),
    "dynamics_outliers": ("linear", "spiked", 2, model_of("huber:1", "outliers:0.1:3")),
    "population": ("softmax", "spiked", 2),
    "population_kinked": ("relu", "spiked", 2),
    "population_weighted": ("erf", "nu*tanh(x)", "1:0.5,2:0.5"),
    "population_largest": ("linear", "max", 2),
    "step": ("softmax", "spiked", 2),
    "step_one": ("relu", "max", 1),
    "bayes": ("spiked", 2),
    "bayes_structured": ("spiked", 2, STRUCTURED_MODEL),
    "bayes_largest": ("max", "2:0.5,3:0.5"),
    "bayes_panels": ("nu*relu(x) - x**2/3", 3),
    "bayes_soft": ("x - 2*log(1 + sum(exp(x)))", 2),
}
# Those whose parts hold those of most others: the rest takes half a minute.
TYPED = (
    "softmax",
    "relu",
    "weighted",
    "lengths",
    "labels",
    "dynamics_largest",
    "population_weighted",
    "step",
    "bayes_largest",
)


def _system(case):
    return (derive if case in TRAINED_CASES else OTHERS[case.partition("_")[0]][0])(*CASES[case])


OTHERS = {
    "bayes": (derive_bayes, BAYES),
    "dynamics": (derive_dynamics, DYNAMICS),
    "population": (derive_population, POPULATION),
    "step": (lambda *of: derive_step(derive(*of)), STEP),
}
TRAINED_CASES = [case for case in CASES if case.partition("_")[0] not in OTHERS]


def _level(case):
    return TRAINED if case in TRAINED_CASES else OTHERS[case.partition("_")[0]][1]


@pytest.fixture(scope="module")
def sources():
    return {name: generate(_system(name)).source for name in CASES}


@cache
def _parsed(source):
    """A module has some thousand lines, and most tests look at each."""
    return ast.parse(source)


def _top_level(source):
    """Every top-level statement, the docstring and imports excepted, by the names that it defines."""
    found = []
    for node in _parsed(source).body[1:]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name)]
        found.append((names or [getattr(node, "name", MAIN)], node))
    return found


def _imports(source):
    nodes = [n for n in _parsed(source).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return {(a.asname or a.name).split(".")[0] for n in nodes for a in n.names}


def _loaded(code: CodeType):
    """The global names that byte code looks up, in all functions within."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(*[_loaded(c) for c in code.co_consts if isinstance(c, CodeType)])


def _annotated(node):
    """The names in annotations, which byte code does not hold."""
    parts = [getattr(n, field, None) for n in ast.walk(node) for field in ("annotation", "returns")]
    return {n.id for p in parts if isinstance(p, ast.AST) for n in ast.walk(p) if isinstance(n, ast.Name)}


def _graph(source):
    """What every top-level name uses."""
    uses = {}
    for names, node in _top_level(source):
        code = compile(ast.Module([node], []), "<statement>", "exec", flags=0, dont_inherit=True)
        uses |= dict.fromkeys(names, (_loaded(code) | _annotated(node)) - set(names))
    return uses


@pytest.mark.parametrize("case", CASES)
def test_no_name_is_defined_twice(case, sources):
    names = [name for found, _ in _top_level(sources[case]) for name in found if name != "__all__"]
    assert sorted(names) == sorted(set(names))
    assert not set(names) & _imports(sources[case])


@pytest.mark.parametrize("case", CASES)
def test_all_is_reached_from_the_entry_points_and_defined(case, sources):
    uses = _graph(sources[case])
    reached, waiting = set(), [*_level(case).entries]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in uses:
            reached.add(name)
            waiting += uses[name]
    assert set(uses) - reached == {"__all__"}
    class_names = {"__name__", "__module__", "__qualname__", "__annotations__"}
    own = {n for found, node in _top_level(sources[case]) if isinstance(node, ast.ClassDef) for n in _inside(node)}
    known = {*uses, *_imports(sources[case]), *dir(builtins), *class_names, *own}
    assert set().union(*uses.values()) <= known


def _inside(node):
    """Names that a class binds for its own body."""
    targets = [t for n in node.body for t in getattr(n, "targets", [getattr(n, "target", None)]) if t is not None]
    return {t.id for t in targets if isinstance(t, ast.Name)} | {n.name for n in node.body if hasattr(n, "name")}


def test_what_is_public_is_said(sources):
    for case, source in sources.items():
        (listed,) = [n for names, n in _top_level(source) if names == ["__all__"]]
        followed = {"free_coordinates", "linearised_map"} if case in ("labels", "regression") else set()  # by no branch
        assert ast.literal_eval(listed.value) == [n for n in _level(case).public if n not in followed]
        assert "Legend." in ast.get_docstring(_parsed(source))


def test_modules_hold_what_they_need_alone(sources):
    absent = {
        "softmax": ("Ranked", "Mixture", "KinkedChannel", "_weighted_risk", "own_log_weight", "coordinate_terms"),
        "structured": ("closed_image", "no_traces", "no_spectrum"),
        "loss": ("FoldedChannel", "ValueChannel", "second_rates", "loss_prox"),
        "labels": ("FoldedChannel", "ValueChannel", "sensitivities"),
        "regression": ("prox", "ProxFreeChannel", "ProxChannel", "second_rates", "sensitivities"),
        "linear": ("FoldedChannel", "GapChannel", "Mixture", "hard_location"),
        "relu": ("ProxFreeChannel", "FoldedChannel", "ProxChannel", "prox", "global_prox", "_integrands"),
        "largest": ("own_location", "displacements", "second_rates", "Sampled"),
        "weighted": ("Ranked", "Sampled", "displacements"),
        "lengths": ("KinkedChannel", "Ranked"),
        "dynamics": ("KERNELS", "own_nodes", "coupled_nodes", "own_log_weight", "gauss_panels"),
        "dynamics_largest": ("gaussian_nodes", "own_nodes", "KERNELS"),
        "population": ("loss", "gradient", "prox", "panel_averages", "_weighted_risk", "iterate"),
        "population_kinked": ("KinkedChannel", "kinked_prox", "gradient"),
        "step": ("FoldedChannel", "free_energy_gradient", "prior_update", "displacements", "Ranked", "Routes"),
        "bayes": ("CoupledChannel", "PanelWeight", "location_weights", "KERNELS", "iterate", "gauss_panels", "sobol"),
        "bayes_largest": ("OwnChannel", "ClosedWeight", "PanelWeight"),
        "bayes_panels": ("CoupledChannel", "ClosedWeight"),
        "bayes_soft": ("OwnChannel", "hard_tables", "winner_below"),
    }
    for case, names in absent.items():
        defined_names = {name for found, _ in _top_level(sources[case]) for name in found}
        assert not defined_names & set(names)


@pytest.mark.parametrize("cases", [TYPED, pytest.param(tuple(CASES), marks=pytest.mark.full)], ids=["some", "all"])
def test_emitted_files_pass_linter_and_types(cases, sources, tmp_path):
    for name in cases:
        (tmp_path / f"emitted_{name}.py").write_text(sources[name], encoding="utf-8")
    files = sorted(map(str, tmp_path.glob("*.py")))
    commands = [
        ["ruff", "check", "--config", "pyproject.toml"],
        ["mypy", "--strict", "--config-file", "pyproject.toml"],
    ]
    for command in commands:
        run = subprocess.run(
            [sys.executable, "-m", *command, *files], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr


LEVELS = {"trained": TRAINED, "bayes": BAYES, "dynamics": DYNAMICS, "population": POPULATION, "step": STEP}


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_parts_are_modules_with_names_of_their_own(level):
    names = [name for p in level.parts for d in part(p).definitions for name in d.names]
    assert sorted(names) == sorted(set(names))
    for name in level.parts:
        importlib.import_module(f"replicode.codegen.runtime.{name}")


def test_what_is_missing_is_an_error():
    with pytest.raises(NameError, match="nothing_of_the_kind"):
        parts = [p for p in TRAINED.parts if p != "solver"]
        linked(parts, [defined("def solve():\n    return nothing_of_the_kind")], {}, ["solve"])
    with pytest.raises(NameError, match="hidden_law"):
        linked(TRAINED.parts, [], {}, ["field_law"])
    with pytest.raises(NameError, match="label_total"):
        linked(BAYES.parts, [], {}, ["label_nodes"])


def test_a_level_may_have_neither_choices_nor_a_script():
    public = ("check_number",)
    level = Level(("kernel", "inputs"), public, public, "Legend. Nothing.", "Nothing is derived.")
    ir = ModuleIR(level, Provenance("Toy", {}, "none", {}, {}), (), {}, (), (), (), {})
    assert {"check_number", "ArgumentError"} <= {name for names, _ in _top_level(numpy_module(ir)) for name in names}


@pytest.mark.parametrize("path", sorted((ROOT / "codegen" / "runtime").glob("*.py")), ids=lambda p: p.stem)
def test_statements_are_told_apart_as_python_does(path):
    text = path.read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    starts = [min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) for node in tree.body]
    found = ["\n".join(lines[start - 1 : node.end_lineno]) for start, node in zip(starts, tree.body, strict=True)]
    assert list(top_level(text)) == found
    names = [[n.name] for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    assert [[*defined(f).names] for f in found if f.startswith(("def ", "class ", "@"))] == names


def test_a_seam_takes_another_value():
    seam = defined("mixed: Callable[[int], float] = alone")
    assert chosen(seam, "mixture").text == "mixed: Callable[[int], float] = mixture"
    assert chosen(seam, "mixture").uses == {"Callable", "int", "float", "mixture"}


@pytest.mark.parametrize("path", sorted((ROOT / "codegen" / "emit").glob("*.py")), ids=lambda p: p.name)
def test_emitters_derive_nothing(path):
    text = path.read_text(encoding="utf-8")
    for word in ("sp.solve", "sp.diff", ".diff(", "simplify", "sp.Poly", "sp.cse", "integrate", "System", "bayes"):
        assert word not in text


def test_no_level_is_known_to_linker_or_contract():
    for name in ("link.py", "contract.py"):
        text = (ROOT / "codegen" / name).read_text(encoding="utf-8")
        assert not [level for level in ("bayes", "dynamics", "population", "rsb", "step_") if level in text]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("module", TRAINED),
        ("equations", TRAINED),
        ("population", POPULATION),
        ("products", POPULATION),
        ("bayes", BAYES),
        ("dynamics", DYNAMICS),
        ("rsb", STEP),
    ],
)
def test_a_level_derives_nothing_after_theory(name, level):
    text = (ROOT / "codegen" / "lower" / f"{name}.py").read_text(encoding="utf-8")
    assert not [w for w in ("sp.solve", "sp.diff", ".diff(", "simplify", "closed_form", "lambdify") if w in text]
    for name in level.parts:
        assert "sympy" not in (ROOT / "codegen" / "runtime" / f"{name}.py").read_text(encoding="utf-8")
