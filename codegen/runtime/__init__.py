"""Run-time source that is inlined into every generated module, in the order of `replicode.codegen.emit.RUNTIME`.

The files are ordinary modules, so that they are linted, typed and tested as such; `kernel` stands for what the emitter
writes from the derived expressions.
"""
