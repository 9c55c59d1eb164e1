"""What every job needs, imported once in the process that jobs are forked from."""

import replicode.reports.equations as _equations
import replicode.serve.work as _work
import replicode.verbs.check as _check
import replicode.verbs.curve as _curve
import replicode.verbs.population as _population

_USED = _equations, _work, _check, _curve, _population
