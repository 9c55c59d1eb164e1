"""What is true. SymPy only: no NumPy arrays, no files.

`model` is the learning problem as one value; `registry`, `lengths` and `limits` are what may be asked, known without
SymPy; `errors` and `budget` are what refuses. `language` reads activations, tasks, losses and labels; `properties`
finds what is true of them; `calculus` and `gaussian` differentiate and average; `derive` has one file a level and hands
a frozen system to `replicode.codegen`; `chain` writes the derivation down step by step, `typeset` as people read it.
"""
