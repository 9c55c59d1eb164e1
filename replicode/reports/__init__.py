"""The report page: one HTML file that needs no network, for colleagues who have nothing installed.

`contents` computes what is said, of activations that are `settled`, with work that is `kept`; `setting` is the model
and `equations` what was derived, which `mathematics` typesets as MathML; `charts` writes Vega-Lite, `page` puts all of
it into one file. `replicode.verbs.report` is the verb; the explorer (`replicode.serve`) shows the same pieces.
"""
