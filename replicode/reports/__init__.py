"""The report page: one HTML file that needs no network, for colleagues who have nothing installed.

`contents` computes what is said, `mathematics` typesets equations as MathML, `charts` writes Vega-Lite, `page` puts all
of it into one file. `replicode.verbs.report` is the verb; the explorer (`replicode.serve`) shows the same pieces.
"""
