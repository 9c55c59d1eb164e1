"""The language of activations and task log-weights: what it has (`functions`), how it is read and how it is written."""

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
