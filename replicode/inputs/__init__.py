"""What users give, read and checked before any work: numbers, ranges, texts, files.

`arguments` checks plain arguments, `ranges` reads LO:HI:N, `spectrum` structured tokens, `radii` those of tokens;
`learned` reads what is learned, and from which of these tokens, into one record. `problem` is one activation on one
task with numbers for its parameters. `content` says what a name stands for, in the keys of what is kept; `asked` says
in a result what it was asked for.
"""
