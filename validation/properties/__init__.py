"""Named properties of what the engine makes of an activation: what must hold, tried in numbers.

Each is a function of a `Subject` whose docstring states the mathematics and which returns a `Verdict`. A property that
the activation is not meant to have, or whose ingredients do not exist for it, is not applicable; one that is meant to
hold and does not has failed. `subject` prepares an activation, `outcomes` runs the suite of `check`; `LONGER` holds
what takes too long for it (both in `suite`). All points are drawn from the subject's seed. By what they are about:
`symmetries` of sigma, `kernels`, `population`, `saddle` (points that solve nothing), `solution`, `ridge` (where all is
explicit), `structured` tokens, `learned` (losses and labels); `averages` and `verdict` are shared.
"""

from replicode.validation.properties.subject import DIGITS, Subject, examined, prepared, subject, suited
from replicode.validation.properties.suite import LONGER, PROPERTIES, outcomes
from replicode.validation.properties.verdict import PASSED, Outcome, Property, Verdict

__all__ = [
    "DIGITS",
    "LONGER",
    "PASSED",
    "PROPERTIES",
    "Outcome",
    "Property",
    "Subject",
    "Verdict",
    "examined",
    "outcomes",
    "prepared",
    "subject",
    "suited",
]
