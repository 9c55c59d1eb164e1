"""What every job needs is imported once, in the process that jobs are forked from."""

import numpy as _numpy  # noqa: F401
import scipy.special as _special  # noqa: F401
import sympy as _sympy  # noqa: F401

import replicode.present as _present  # noqa: F401
import replicode.reports.contents as _contents  # noqa: F401
import replicode.serve.work as _work  # noqa: F401
import replicode.verbs.check as _check  # noqa: F401
import replicode.verbs.curve as _curve  # noqa: F401
import replicode.verbs.population as _population  # noqa: F401
