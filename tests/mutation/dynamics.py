"""Small faults of the training dynamics, each with the tests that must notice it."""

from mutation.jobs import Checks, Mutant


def _checks(file: str, *names: str) -> tuple[Checks, ...]:
    return (Checks(f"{file}.py", tuple(f"test_{name}" for name in names)),)


exact = _checks("unit/test_dynamics", "the_rates_of_a_polynomial_by_exact_nodes_over_all_fields")
located = _checks("unit/test_dynamics", "the_weight_of_the_location_one_token_at_a_time[softmax-max-2.0]")
winner = _checks("unit/test_dynamics", "the_weight_of_the_location_one_token_at_a_time[softmax-max-inf]")
single = _checks("unit/test_dynamics", "one_token_at_a_time_is_all_at_once")
variants = _checks("unit/test_dynamics", "decay_batch_and_a_fixed_v")
trajectories = _checks("oracle/test_dynamics", "trajectories_by_brute_force")
gained = _checks("unit/test_dynamics", "the_flow_of_any_loss_is_minus_its_slopes_times_the_mobility")

LOCATED, FACTORS = "codegen/runtime/dynamics_located.py", "codegen/runtime/dynamics_factors.py"
DYNAMICS = [
    Mutant(
        "steps without what both students have in common",
        "theory/derive/dynamics.py",
        "rate += rate_of(one.block) * rate_of(two.block) * spread_symbol(*pair) / BATCH",
        "rate += rate_of(one.block) ** 2 * spread_symbol(*pair) / BATCH",
        exact,
    ),
    Mutant(
        "weight decay along the teacher's norm",
        "theory/derive/dynamics.py",
        "decay = model.penalty_curvature(moving) * overlap(student(moving), along, model)",
        "decay = model.penalty_curvature(moving) * overlap(along, along, model)",
        variants,
    ),
    Mutant(
        "a norm put back with the student's rate alone",
        "theory/derive/dynamics.py",
        "scales = [sp.sqrt(b.q / (b.q + t * rates[b.q])) for b in students]",
        "scales = [sp.sqrt(b.q / (b.q + t * rates[b.q])) for b in students[:1]]",
        trajectories,
    ),
    Mutant(
        "the slope of S^-1 with its sign changed",
        "theory/derive/factorised.py",
        "by_top, by_bottom = sp.diff(f, _N), sp.diff(f, _S)",
        "by_top, by_bottom = sp.diff(f, _N), -sp.diff(f, _S)",
        single,
    ),
    Mutant(
        "an idle token's sums counted once",
        FACTORS,
        "return np.asarray(found + self.others * _coefficient(self.hidden[0, label], beside, order))",
        "return np.asarray(found + _coefficient(self.hidden[0, label], beside, order))",
        single,
    ),
    Mutant(
        "kinks that are no edges of panels",
        FACTORS,
        "crossing = ((kinks - centres[:, None]) / deviation)[..., None] + GRADED",
        "crossing = ((kinks - centres[:, None]) / deviation)[..., None] + GRADED + 0.05",
        trajectories,
    ),
    Mutant(
        "the half-line without the slope of its map",
        LOCATED,
        "return x - np.exp(-x) - largest, step * (1.0 + np.exp(-x))",
        "return x - np.exp(-x) - largest, step * np.ones_like(x)",
        located,
    ),
    Mutant(
        "the hidden token without its own weight",
        LOCATED,
        "hidden = steps[:, None] * np.exp(powers) * idle",
        "hidden = steps[:, None] * np.exp(log_s)[:, None] * idle",
        located,
    ),
    Mutant(
        "no integral within the winner's own panel",
        LOCATED,
        "found[panel, :, panel] = half[:, None, None] * panel_integrals()",
        "found[panel, :, panel] = 0.0 * panel_integrals()",
        winner,
    ),
    Mutant(
        "a gain's second moment without that of degree zero",
        "theory/derive/gains.py",
        "(2, 0): self.one_one + self.zero,",
        "(2, 0): self.one_one,",
        gained,
    ),
]
