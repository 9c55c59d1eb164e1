"""Emitters: `numpy`, `c` and `mpmath` print a ModuleIR and derive nothing; `printer` spells expressions in NumPy."""
