"""Phase diagrams over two parameters, at either level: replica symmetric or Bayes-optimal.

`plane` has the two ranges and what a level must tell at a point of them; `rs` and `bayes` are the levels; `sampling`
says where to look next; `spinodal` and `contour` follow lines; `lines` finds where lines begin. The verb is
`replicode.verbs.phase`.
"""
