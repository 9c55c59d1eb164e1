"""Running a generated module as a script."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from replicode.codegen.runtime.inputs import OutOfReach
from replicode.codegen.runtime.options import OPTIONS, READERS
from replicode.codegen.runtime.solver import solve

STRUCTURED = ("norm2_k", "norm2_v", "effective_rank")


def finite(value: Any) -> Any:
    """JSON-ready: numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def main(argv: list[str] | None = None) -> int:
    """Solve from the command line; exit status 0 done, 1 not to be trusted as it stands, 2 bad input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nu", type=float, required=True, help="signal strength")
    parser.add_argument("--noise", type=float, default=0.0, help="label noise (a standard deviation)")
    for add_options in OPTIONS:
        add_options(parser)
    parser.add_argument(
        "--tol", type=float, help="absolute error asked for on the test risk; left out: what a few seconds give"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = vars(parser.parse_args(argv))
    as_json, parameters = options.pop("json"), dict(options.pop("param", []))
    try:
        for read in READERS:
            options = read(options)
        solution = solve(**options, **parameters)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    except ArithmeticError as problem:
        known = isinstance(problem, OutOfReach)
        print(problem if known else f"the numbers leave double precision here: {problem}", file=sys.stderr)
        return 1
    fields = {name: value for name, value in solution._asdict().items() if name not in STRUCTURED or value is not None}
    result = finite(fields)
    print(json.dumps(result) if as_json else "\n".join(f"{k}: {v}" for k, v in result.items()))
    for warning in solution.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return 1 if solution.warnings else 0


if __name__ == "__main__":
    sys.exit(main())
