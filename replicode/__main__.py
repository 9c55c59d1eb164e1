"""`python -m replicode` is the command line."""

from replicode.cli import main

if __name__ == "__main__":
    main(prog_name="replicode")
