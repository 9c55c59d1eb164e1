"""Training: attention trained on data, by every method that a theory is compared with.

`learning` has label, output, loss and penalty of a `Model` as NumPy functions, `attention` the objective and its
gradient. `train` minimises it from a start, by `methods`, rounding off kinks by stages (`kinks`), and hands on a
`Trained`; `response` is how its minimum responds. `full_batch` is plain gradient descent. One-pass SGD is `online` (on
stored data), `stream` (tokens drawn as they are needed) and `reduced` (the exact chain of its overlaps).
"""
