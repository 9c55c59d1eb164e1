"""Phase diagrams: lines of a cusp that is known in closed form, adaptive points, and the command's checks."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import replicode as rc
from replicode.cli import main
from replicode.inputs.problem import problem
from replicode.inputs.ranges import Range
from replicode.phases.contour import contour, root
from replicode.phases.lines import EDGE, SPINODAL, TRANSITION, Line, Lines, crosses
from replicode.phases.plane import INFORMED, ONE, UNINFORMED, Linear, Look, Plane
from replicode.phases.sampling import first_places, next_place, shares, triangles
from replicode.phases.spinodal import spinodal
from replicode.theory.errors import InputError
from replicode.verbs.phase import phase


class Cusp:
    """u^3 = y u + x with potential u^4/4 - y u^2/2 - x u, x from -1 to 1 and y from -1 to 2 in unit coordinates.

    Spinodals are at 27 x^2 = 4 y^3, the transition at x = 0 < y, the cusp at the origin; stable where x < 0.5.
    """

    def xy(self, place):
        return 2.0 * place[0] - 1.0, 3.0 * place[1] - 1.0

    def linear(self, u, place, slopes=True):
        x, y = self.xy(place)
        (at,) = u
        value, by_u = np.array([x + y * at - at**3]), np.array([[y - 3.0 * at**2]])
        return Linear(value, by_u, np.array([[2.0, 3.0 * at]]), at**4 / 4 - y * at**2 / 2 - x * at, {})

    def look(self, place, near):
        x, y = self.xy(place)
        roots = sorted(r.real for r in np.roots([1.0, 0.0, -y, -x]) if abs(r.imag) < 1e-9)
        outer = sorted({roots[0], roots[-1]}, key=lambda u: self.linear((u,), place).potential)
        rows = [
            {"u": [u], "test_risk": -u, "potential": self.linear((u,), place).potential, "how": "root"} for u in outer
        ]
        winner = INFORMED if len(rows) > 1 and rows[0]["u"][0] > 0 else UNINFORMED
        return Look(place, ONE if len(rows) == 1 else winner, tuple(rows), x < 0.5, x - 0.5)

    def margin(self, u, place):
        return self.xy(place)[0] - 0.5, u


@pytest.fixture(scope="module")
def looks():
    found = [Cusp().look(p, ()) for p in first_places()]
    while len(found) < 90:
        found.append(Cusp().look(next_place(found), ()))
    return found


@pytest.fixture(scope="module")
def lines(looks):
    return Lines(Cusp(), looks, lambda _: None).all(stability=True)


def test_spinodals_go_through_the_cusp(lines):
    (line,) = [each for each in lines if each.kind == SPINODAL]
    assert line.complete and len(line.cusps) == 1
    for place in line.places:
        x, y = Cusp().xy(place)
        assert abs(27.0 * x**2 - 4.0 * y**3) < 1e-6
    assert np.abs(Cusp().xy(line.cusps[0])).max() < 0.02
    sides = [Cusp().xy(line.places[i])[0] for i in (0, -1)]
    assert min(sides) < 0.0 < max(sides)


def test_transition_from_the_cusp_to_the_border(lines):
    (line,) = [each for each in lines if each.kind == TRANSITION]
    assert line.complete
    x, y = np.array([Cusp().xy(p) for p in line.places]).T
    assert np.abs(x[np.abs(y) > 0.02]).max() < 1e-6
    assert abs(max(y) - 2.0) < 1e-6 and abs(min(y)) < 0.02


def test_edge_of_stability(lines):
    found = [each for each in lines if each.kind == EDGE]
    assert found and all(abs(Cusp().xy(p)[0] - 0.5) < 5e-3 for line in found for p in line.places)


def test_a_spinodal_is_the_same_from_either_side():
    """The same line from a fold on the left and one on the right."""
    y = 1.0
    x = 2.0 * (y / 3.0) ** 1.5
    ends = [
        spinodal(Cusp(), np.array([s * np.sqrt(y / 3.0)]), np.array([(1.0 - s * x) / 2.0, (1.0 + y) / 3.0]))
        for s in (1.0, -1.0)
    ]
    assert all(e is not None and len(e.cusps) == 1 for e in ends)
    one, two = (Line(SPINODAL, e.points, (), True) for e in ends)
    assert max(one.distance(p) for p in two.places[1:-1]) < 2e-3  # straight pieces between points


def test_where_there_is_no_fold_there_is_no_line():
    class Straight(Cusp):
        def linear(self, u, place, slopes=True):
            return Linear(np.array([sum(place) - u[0]]), np.array([[-1.0]]), np.array([[1.0, 1.0]]), 0.0, {})

    assert spinodal(Straight(), np.array([0.0]), np.array([0.5, 0.0])) is None


def test_points_gather_at_lines(looks):
    """Triangles that a line parts are far smaller than the others, and all of them fill the plane."""
    corners = triangles(looks)
    kinds = np.array([f"{look.phase} {look.stable}" for look in looks])[corners]
    places = np.array([look.place for look in looks])[corners]
    sides = places[:, 1:] - places[:, :1]
    area = 0.5 * np.abs(np.linalg.det(sides))
    parted = (kinds != kinds[:, :1]).any(axis=1)
    assert area[parted].max() < 0.25 * area[~parted].max()
    assert abs(shares(looks).sum() - 1.0) < 1e-12


def test_a_closed_contour():
    found = contour(lambda p: float((p[0] - 0.5) ** 2 + (p[1] - 0.5) ** 2 - 0.09), np.array([0.8, 0.5]), 1e-9)
    assert found.closed and max(abs(np.hypot(x - 0.5, y - 0.5) - 0.3) for x, y in found.points) < 1e-7


def test_a_contour_ends_where_there_is_no_value():
    found = contour(lambda p: float(p[1] - 0.5) if p[0] < 0.7 else float("nan"), np.array([0.3, 0.5]), 1e-9)
    assert not found.complete and 0.6 < max(x for x, _ in found.points) < 0.7 and min(x for x, _ in found.points) == 0.0


def test_no_root_within_reach():
    assert root(lambda p: 1.0 + p[0], np.zeros(2), np.array([1.0, 0.0]), 0.1, 1e-9) is None


def test_crossings():
    line = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    assert list(crosses(np.array([0.0, 1.0]), np.array([1.0, 0.0]), line)) == [True, False]


def test_the_map_has_slopes_in_both_parameters():
    """Against differences of the map, at a point that is no solution."""
    from replicode.phases.rs import ReplicaSymmetric

    posed = problem(
        "sigmoid(2*x - c)", "spiked", 1, dict(alpha=2.0, nu=4.0, noise=0.3, lambda_k=3.0, lambda_v=0.5), {"c": 1.0}
    )
    level = ReplicaSymmetric(posed, Plane(Range("lambda_k", 1.0, 8.0), Range("c", 0.0, 2.0)), False)
    u, place = np.array([0.3, -1.0, -1.0, 0.5, -1.0, -0.5]), np.array([0.4, 0.3])
    found = level.linear(u, place)
    for i, move in enumerate(1e-4 * np.eye(2)):
        above, below = (level.linear(u, place + s * move, slopes=False).value for s in (1.0, -1.0))
        assert np.allclose(found.by_plane[:, i], (above - below) / 2e-4, atol=1e-4)


SETTING = {"tokens": 1, "alpha": "1:4", "nu": 2.0, "noise": 0.3, "lambda_v": "0.3:3"}


def test_one_token_has_one_phase(tmp_path):
    """One token, softmax: regression, one solution everywhere; the data are left beside the figure."""
    target = tmp_path / "phase.svg"
    found = phase("softmax", **SETTING, points=30, keep=False, output=target)
    assert found.ok and not found.lines and [r["phase"] for r in found.regions] == ["one"]
    kept = json.loads(target.with_suffix(".json").read_text())
    assert kept["schema"] == "replicode/phase/1" and kept["parameters"] == ["alpha", "lambda_v"]
    assert len(kept["points"]) == len(target.with_suffix(".csv").read_text().splitlines()) - 1 == 30
    row = found.rows()[0]
    solved = rc.solve("softmax", tokens=1, alpha=row["alpha"], lambda_v=row["lambda_v"], nu=2.0, noise=0.3, bayes=False)
    assert abs(row["test_risk"] - solved.test_risk) <= row["error"] + solved.error


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"lambda_v": 1.0}, "range"),
        ({"nu": "1:2"}, "range"),
        ({"points": 3}, "points"),
        ({"level": "1rsb"}, "level"),
        ({"alpha": "-1:2"}, "alpha"),
        ({"output": "phase.txt"}, "output"),
        ({"level": "bayes"}, "range"),
    ],
)
def test_bad_input(change, argument):
    with pytest.raises(InputError, match=argument):
        phase("softmax", **SETTING | change)


def test_the_command_refuses_one_range():
    result = CliRunner().invoke(main, ["phase", "softmax", "--tokens", "2", "--alpha", "1:4", "--nu", "2"])
    assert result.exit_code == 2 and "exactly two parameters as ranges" in result.output


BISTABLE = {"tokens": 1, "alpha": 2.0, "nu": 16.0, "noise": 0.3, "lambda_v": 0.5}


@pytest.mark.full
def test_a_gate_has_a_cusp():
    """sigmoid(2 x - c), a gate on one token: spinodals as `branch` finds them at c = 3, and a transition between."""
    found = phase("sigmoid(2*x - c)", **BISTABLE, lambda_k="4:14", parameters={"c": "2:3.6"}, points=60)
    (fold,) = [line for line in found.lines if line["kind"] == SPINODAL]
    (equal,) = [line for line in found.lines if line["kind"] == TRANSITION]
    assert found.ok and fold["complete"] and equal["complete"]
    followed = rc.branch("sigmoid(2*x - 3)", **BISTABLE, lambda_k="4:14")
    points = np.array(fold["points"])
    crossed = [
        float(np.interp(0.0, *zip(*sorted(zip(pair[:, 1] - 3.0, pair[:, 0])))))
        for pair in (points[i : i + 2] for i in range(len(points) - 1))
        if (pair[0, 1] - 3.0) * (pair[1, 1] - 3.0) <= 0.0
    ]
    assert np.allclose(sorted(crossed), sorted(followed.spinodals), rtol=5e-3)
    assert {r["phase"] for r in found.regions} == {"one", "informed", "uninformed"}
