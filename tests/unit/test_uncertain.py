"""Numbers as people read them: to their error, rounded so that it still covers."""

import re
from decimal import Decimal

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from replicode.cli import main
from replicode.uncertain import with_error

POINT = ["--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.5399318472912, 1.84e-9, "0.539931847(2)"),
        (0.99999, 0.0011, "1.000(2)"),
        (-0.25, 0.01, "-0.25(1)"),
        (12.3, 4.0, "12.3 +- 4"),
        (0.5, 0.0, "0.5"),
        (0.123456, None, "0.123"),
        (0.123456, float("inf"), "0.123 (error not known)"),
    ],
)
def test_written_to_the_error(value, error, text):
    assert with_error(value, error) == text


@given(st.floats(-9.0, 9.0), st.floats(1e-14, 0.5))
def test_what_is_written_covers_the_value(value, error):
    """The bound that is read is at least the error, and the value is rounded by half a unit of the last place."""
    found = re.fullmatch(r"(-?\d\.(\d+))\((\d)\)", with_error(value, error))
    assert found
    unit = Decimal(1).scaleb(-len(found[2]))
    assert int(found[3]) * unit >= Decimal(repr(error))
    assert abs(Decimal(found[1]) - Decimal(value)) <= unit / 2


def test_solve_prints_warnings_first_and_numbers_to_their_error():
    done = CliRunner().invoke(main, ["solve", "softmax", *POINT, "--digits", "3"])
    assert re.search(r"^test_risk +0\.5\d*\(\d\)$", done.output, re.MULTILINE)
    refused = CliRunner().invoke(main, ["solve", "relu", *POINT, "--tokens", "1", "--digits", "2"])
    assert refused.exit_code == 1 and refused.output.startswith("warning: ")


def test_one_step_of_breaking_is_written_to_its_own_errors():
    from replicode.results import Solution

    names = ("test_risk", "excess_risk", "train_loss", "energy", "residual", "replicon", "jump_weight", "folded_mass")
    step = {"test_risk": 1.23456, "error": 1e-2, "order_parameters": {"m_k": 0.56789}, "errors": {"m_k": 1e-3}}
    found = Solution(
        **dict.fromkeys(names, 0.5),
        **{"order_parameters": {"m_k": 0.25}, "conjugates": {}, "converged": True, "iterations": 3, "error": 1e-6},
        **{"rs_stable": False, "method": "none", "bayes_risk": None, "errors": {"m_k": 1e-5}, "rsb": step},
    ).shown()
    assert found["order_parameters"]["m_k"] == "0.25000(1)"
    assert found["rsb"]["order_parameters"]["m_k"] == "0.568(1)" and found["rsb"]["test_risk"] == "1.23(1)"
