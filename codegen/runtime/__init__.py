"""Run-time source, from which the linker (codegen/link.py) puts what a generated module needs into it.

The files are ordinary modules: they import, are linted, typed and tested as such. `kernel` stands for what is derived,
and a name that a part assigns a default to, such as ROUTES, is a seam at which the linker puts a system's choice.
"""
