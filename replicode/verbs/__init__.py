"""The verbs in Python, one file each; `replicode.commands` has their command lines."""
