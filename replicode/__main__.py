"""`python -m replicode` is the command line."""

import sys


def main() -> None:
    """The command line; interrupted while it is imported, it leaves as quietly as later."""
    try:
        from replicode.cli import main as command_line

        command_line(prog_name="replicode")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
