"""Emitters: each prints a ModuleIR in one language, and derives nothing."""
