"""Small faults of one step of replica symmetry breaking, each with the tests that must notice it."""

from mutation.jobs import Checks, Mutant


def _checks(file: str, *names: str) -> tuple[Checks, ...]:
    return (Checks(f"{file}.py", tuple(f"test_{name}" for name in names)),)


glass = _checks("unit/test_rsb", "the_spin_glass_at_one_step")
stated = _checks("unit/test_rsb", "the_free_energy_is_that_of_the_theory_brief")
bends = _checks("unit/test_rsb", "second_slopes_are_those_of_the_smoothed_function")
second = _checks("oracle/test_rsb", "equilibrium_of_two_tokens[physics0-0.6-2-True]")
nested = _checks("property/test_rsb", "nodes_within_nodes_agree_with_the_table[softmax-2]")

RSB = [
    Mutant(
        "a tilt that is too weak",
        "codegen/runtime/rsb_grid.py",
        "    tilt = np.exp(-y * (table - least))",
        "    tilt = np.exp(-0.97 * y * (table - least))",
        second,
    ),
    Mutant(
        "the response between states without what the tilt moves",
        "codegen/runtime/rsb_grid.py",
        "bends[i, j] = bends[j, i] = y * found.gradient[i] * found.gradient[j] - moved / y",
        "bends[i, j] = bends[j, i] = found.gradient[i] * found.gradient[j] - moved / y",
        bends,
    ),
    Mutant(
        "noise of the values with the variance of the scores",
        "codegen/runtime/rsb_table.py",
        "np.where(np.arange(len(self.mean)) < self.split, *noise)",
        "np.where(np.arange(len(self.mean)) < 3, *noise)",
        second,
    ),
    Mutant(
        "outer fields that hold the noise already",
        "codegen/runtime/rsb_evolution.py",
        'places = [STEP_NAMES.index(name.replace("q_", "q0_")) for name in ORDER_NAMES]',
        'places = [STEP_NAMES.index(name.replace("q_", "q1_")) for name in ORDER_NAMES]',
        second,
    ),
    Mutant(
        "inner nodes on spheres that are too small",
        "codegen/runtime/rsb_nested.py",
        "np.sqrt(2.0 * squares), turns, points",
        "np.sqrt(1.9 * squares), turns, points",
        nested,
    ),
    Mutant(
        "the blocks of overlaps without y kept finite",
        "theory/derive/rsb.py",
        "scaled = entropy.subs({BLOCK_SIZE: Y_PARISI / BETA, **(powers or {})}, simultaneous=True)",
        "scaled = entropy.subs({BLOCK_SIZE: 2 * Y_PARISI / BETA, **(powers or {})}, simultaneous=True)",
        (*glass, *stated),
    ),
]
