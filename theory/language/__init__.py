"""The language that users type: what it has, how it is read and how it is written.

`functions` has one record a function, `nodes` those that SymPy lacks; `reader` reads text safely and `writer` writes it
back. `activation`, `task` and `losses` are what is read, `vector` the sums over tokens in it.
"""

from replicode.theory.language.reader import (
    ALLOWED,
    FUNCTIONS,
    RESERVED,
    Vocabulary,
    _budget,
    _Exhausted,
    check_names,
    parse,
)
from replicode.theory.language.writer import unparse

__all__ = ["ALLOWED", "FUNCTIONS", "RESERVED", "Vocabulary", "_Exhausted", "_budget", "check_names", "parse", "unparse"]
