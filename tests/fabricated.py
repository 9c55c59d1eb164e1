"""A report's contents made by hand, so that pages are tested without solving anything."""

import sympy as sp

from replicode.reports.contents import Contents, Part
from replicode.reports.mathematics import equation, named_equations
from replicode.verbs.check import FACTS
from replicode.verbs.curve import Curve

SCRIPT = "<script>alert(1)</script>"
VALUES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def columns(level):
    """Replica symmetry is broken at the first two values."""
    count = len(VALUES)
    return {
        "test_risk": tuple(level - 0.05 * v for v in VALUES),
        "error": (1e-3,) * count,
        "rs_stable": (False, False, True, True, True, True),
        "replicon": tuple(1.2 - 0.15 * v for v in VALUES),
        "converged": (True,) * count,
        "solved": (True,) * count,
        "bayes_risk": tuple(0.3 - 0.02 * v for v in VALUES),
    }


def curve(names):
    asked = {"task": "spiked", "tokens": 2, "alpha": 1.0, "nu": 2.0, "noise": 0.3, "lambda_k": 1.0, "lambda_v": 1.0}
    return Curve(
        parameter="alpha",
        values=VALUES,
        activations={n: columns(0.9 + 0.1 * i) for i, n in enumerate(names)},
        nodes=dict.fromkeys(names, VALUES),
        jumps={n: ((4.2, 4.8),) if i == 0 else () for i, n in enumerate(names)},
        trained={names[0]: ({"alpha": 2.0, "mean": 0.81, "sem": 0.004}, {"alpha": 6.0, "mean": 0.6, "sem": 0.003})},
        asked={**asked, "optimal": False},
    )


def part(name):
    alpha, field = sp.symbols("alpha G_chi_eps")
    check = dict.fromkeys(FACTS, True) | {"parameters": ["c"], "kinks": [], "growth": {"+inf": "x", "-inf": "x"}}
    check |= {"properties": {"gradient": "passed", "shift": "failed"}, "warnings": [], "nishimori_condition": None}
    best = {"nu": 2.0, "test_risk": 0.42, "excess_risk": 0.33, "error": 1e-6, "closed_form": "L*(L - 1)"}
    return Part(
        name=name,
        expression="1 + x",
        values={},
        chosen={"c": 0.25},
        check=check,
        best=best | {"parameters": {"c": 0.25}, "nishimori": False},
        equations=tuple(named_equations({"mh_k": alpha * field, "test_risk": sum(sp.symbols("A:40")) ** 2})),
        source=f"# {name}\nprint('hello')\n",
        signature="0123456789abcdef" * 4,
    )


def contents(names=("softmax", SCRIPT)):
    infinite = [
        {"activation": n, "nu": v, "test_risk": 0.5 - 0.05 * v + 0.1 * i, "error": 1e-6, "bayes_risk": 0.4 - 0.05 * v}
        for i, n in enumerate(names)
        for v in (1.0, 2.0, 3.0)
    ]
    m, q = sp.symbols("mh_k Vh_k")
    shared = {"Saddle point": (equation("m_k", "m_{k}", m / (1 + q)),)}
    options = {"task": "spiked", "tokens": 2, "alpha": "1:6", "bayes": True, "parameters": {}}
    warnings = ("softmax: replica symmetry is broken at nodes from 1 to 2",)
    return Contents(tuple(map(part, names)), curve(names), tuple(infinite), shared, options, warnings)
