"""`python -m replicode` is the command line."""

from replicode.cli import main

main(prog_name="replicode")
