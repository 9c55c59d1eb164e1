"""Error per second where folds are felt and where tokens are many, against a global prox on scrambled nodes."""

from __future__ import annotations

import math
from types import SimpleNamespace

from benchmarks.modules import modules
from benchmarks.timing import once, table

POINT = {"alpha": 4.0, "nu": 2.0, "noise": 0.3}
ASKED = (  # activation, task, tokens, lambda, error, seconds
    ("softmax", "spiked", 3, 0.3, 1e-5, 2.0),
    ("softmax", "spiked", 3, 0.1, 1e-4, 5.0),
    ("linear", "spiked", 2, 0.1, 1e-5, 2.0),
    ("softmax", "spiked", 4, 0.3, 1e-4, 10.0),
    ("softmax", "spiked", 8, 1.0, 1e-4, 20.0),
    ("softmax", "spiked", 32, 1.0, 1e-4, 60.0),
    ("softmax", "max", 8, 1.0, 1e-3, 30.0),
)
WARM = {"lambda_k": 2.0, "lambda_v": 2.0}


def solved(module, arguments, tol):
    """A solution, and its processor time."""
    return once(lambda: module.solve(**arguments, tol=tol))


def without_search(module, arguments, tol):
    """The same with a global prox where folds are felt, as it was before they were searched."""
    if not hasattr(module, "searched_state"):
        return solved(module, arguments, tol)
    before = {name: getattr(module, name) for name in ("searched_state", "POORLY_SEARCHED")}
    vars(module).update(searched_state=lambda *_: SimpleNamespace(converged=False), POORLY_SEARCHED=0.0)
    try:
        return solved(module, arguments, tol)
    finally:
        vars(module).update(before)


def error_per_second():
    """Each line of ASKED by both ways, one after the other."""
    print("## Error per second, alpha 4, nu 2 (max: infinite), noise 0.3, compiled, one thread\n")
    rows = []
    for text, task, tokens, penalty, tol, limit in ASKED:
        _, module = modules(text, tokens, task)
        point = POINT | ({"nu": math.inf} if task == "max" else {})
        module.solve(**point, **WARM, tol=1e-2)
        arguments = point | {"lambda_k": penalty, "lambda_v": penalty}
        seconds, found = solved(module, arguments, tol)
        before, other = without_search(module, arguments, tol)
        kept = found.converged and found.error <= tol and seconds <= limit
        asked = f"{tol:.0e} in {limit:g} s"
        ways = [f"{s.test_risk:.6f} +- {s.error:.1e}" for s in (found, other)]
        replicon = f"{found.replicon:.3f} +- {found.errors['replicon']:.3f}"
        name = f"{text}, {task}, L = {tokens}, lambda {penalty:g}"
        rows.append(
            (name, asked, ways[0], f"{seconds:.2g}", "yes" if kept else "no", ways[1], f"{before:.2g}", replicon)
        )
    table(("point", "asked", "test risk", "time (s)", "kept", "by a global prox", "time (s)", "replicon"), rows)


if __name__ == "__main__":
    error_per_second()
