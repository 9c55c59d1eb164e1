"""One derivation, so that SymPy's own caches are filled in the process that jobs are forked from.

The first derivation of a process takes seconds, any further one tenths.
"""

from contextlib import suppress as _suppress

from replicode.reports.equations import of_activation as _of_activation
from replicode.theory.errors import ReplicodeError as _ReplicodeError
from replicode.theory.lengths import lengths as _lengths

with _suppress(_ReplicodeError):
    _of_activation("softmax", "spiked", _lengths(2))
