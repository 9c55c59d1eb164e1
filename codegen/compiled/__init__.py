"""Compiled kernels: `fast` makes a shared library of a system's C source, `native` puts it behind a loaded module."""
