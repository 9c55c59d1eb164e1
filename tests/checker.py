"""An independent look at a derivation: both sides of every step, at random points, from the JSON alone.

Imports nothing of the project. `python checker.py FILE.json` prints the numbers of the steps that fail, and leaves with
status 1 if there are any.
"""

import json
import random
import sys

import mpmath
import sympy

TOLERANCE = mpmath.mpf(10) ** -10


def value(expression, point):
    """The number that an expression has at a point."""
    found = expression.xreplace(point).evalf(15)
    if not found.is_number or not found.is_finite:
        raise ValueError(f"{str(expression)[:80]} is {found} at {point}")
    return mpmath.mpmathify(complex(found))


def agrees(step, points=2, seed=0):
    """Whether both sides of a step are the same at random values of all their symbols."""
    rng = random.Random(f"{seed} {step['rule']}")
    lhs, rhs = sympy.sympify(step["lhs"]), sympy.sympify(step["rhs"])
    symbols = sorted(lhs.free_symbols | rhs.free_symbols, key=str)
    for _ in range(points):
        point = {s: sympy.Float(rng.uniform(0.2, 1.5)) for s in symbols}
        left, right = value(lhs, point), value(rhs, point)
        if abs(left - right) > TOLERANCE * max(abs(left), abs(right)):
            return False
    return True


def failures(derivation, points=2, seed=0, known=frozenset()):
    """The numbers of the steps whose sides differ; steps whose text is in `known` are passed over."""
    numbered = enumerate(derivation["steps"], 1)
    return [n for n, s in numbered if (s["lhs"], s["rhs"]) not in known and not agrees(s, points, seed)]


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        wrong = failures(json.load(file))
    print(wrong)
    sys.exit(1 if wrong else 0)
