"""Examples of every verb: what `--help` shows, and the reference in the documentation."""

from __future__ import annotations

POINT = "--tokens 2 --alpha 4 --nu 2 --noise 0.3"

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "derive": (
        ('derive "1 + erf(c + x)"', "the model, free energy and equations"),
        ("derive softmax --steps", "and the numbered chain that leads to them"),
        ("derive softmax --format latex --fragment", "to paste into a paper"),
    ),
    "check": (('check "exp(x)/sum(exp(x)) + 0.01*x"', "what it is, and a property suite"),),
    "population": (
        ("population linear --tokens 3 --nu 2", "the best risk with infinite data"),
        ("population softmax --task max --tokens 3 --nu inf", "the hidden token has the largest score"),
    ),
    "generate": (("generate softmax --tokens 2 -o softmax2.py", "one file that needs NumPy and SciPy only"),),
    "solve": (
        (f"solve softmax {POINT}", "test risk, order parameters, error, stability"),
        (f'solve "1 + erf(c + x)" --param c=0.5 {POINT} --digits 4', "an activation of your own"),
        (f"solve softmax {POINT} --derivatives", "how every quantity moves with every parameter"),
        (f"solve softmax {POINT} --verbose", "the residual of every iteration"),
    ),
    "curve": (
        ("curve softmax linear --tokens 2 --alpha 1:10 --nu 2 --noise 0.3 -o risk.svg", "beside the Bayes line"),
        ("curve softmax --tokens 2 --alpha 4 --nu 0.5:8 --noise 0.3 --trained -o nu.svg", "with trained attention"),
    ),
    "optimal": ((f"optimal softmax {POINT}", "the lambdas of least test risk"),),
    "phase": (("phase softmax --tokens 2 --alpha 1:6 --nu 0.5:4 --noise 0.3 -o phase.svg", "where what happens"),),
    "bayes": (
        (f"bayes {POINT}", "the best that any estimator can do"),
        ("bayes --task max --nu inf --tokens 3 --noise 0.05 --alpha 1.1:1.6 -o branches.svg", "its hard phase"),
    ),
    "validate": ((f"validate softmax {POINT}", "attention trained at three sizes against the theory"),),
    "landscape": ((f"landscape softmax {POINT} --dim 200 --starts 10", "what training finds from many starts"),),
    "dynamics": (("dynamics softmax --tokens 2 --nu 2 --rate 0.5 --time 30 -o training.svg", "one-pass SGD"),),
    "sweep": (("sweep examples/sweep.toml --workers 2 --export sweep.csv", "killed, it goes on where it was"),),
    "study": (("study softmax --tokens 2", "where theory and training part"),),
    "figure": (("figure population --quick", "a figure of the paper, in under a minute"),),
    "report": (('report softmax linear "1+erf(c+x)" --tokens 2 --alpha 1:10 --nu 2 -o report.html', "one page"),),
    "serve": (("serve --port 8080", "the explorer, on this machine alone"),),
    "demo": (("demo", "derive, generate, solve, validate, with a figure"),),
    "cache": (("cache", "what is kept of earlier runs"), ("cache --clear", "empty it")),
}


def shown(verb: str) -> list[str]:
    """The examples of a verb as lines: the command, then what it is for."""
    return [line for command, words in EXAMPLES.get(verb, ()) for line in (f"replicode {command}", f"    {words}")]
