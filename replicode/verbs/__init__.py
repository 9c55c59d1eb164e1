"""The verbs in Python, one file each; `replicode.commands` has their command lines.

`precise` and `rsb` are parts of `solve`, `embeddings` of `validate`. `demo` and `study` leave a folder of files.
"""
