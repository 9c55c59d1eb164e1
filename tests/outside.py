"""Replicode as a user has it: another process, the command line, plain Python. Nothing of the project is imported.

REPLICODE_PYTHON names the Python of another environment to be used instead, so that a test can be seen to fail on the
version in which its fault was found: `REPLICODE_PYTHON=CHECKOUT/.venv/bin/python pytest tests/blackbox -m full`.
(To put another checkout on the path is not enough: what it lacks is then taken from this one.)
"""

import json
import os
import resource
import subprocess
import sys

COMMAND = "import sys; from replicode.cli import main; sys.argv[0] = 'replicode'; main()"
POINT = ("--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3")
GIGABYTE = 1 << 30
PYTHON = os.environ.get("REPLICODE_PYTHON", sys.executable)
WAIT = 8  # how many seconds a busy machine may take for one of processor time


def environment(cache, **changes):
    """The environment of a user: no thread variable is set."""
    free = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    return free | {"REPLICODE_CACHE": str(cache)} | changes


def limited(seconds, memory=None, file_size=None):
    """What a child process may use; a write beyond the file size fails as on a full disk."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if file_size:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    return limit


def options(**values):
    """Options of the command line from keywords."""
    return [text for name, value in values.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def command(*arguments):
    return [PYTHON, "-P", "-c", COMMAND, *map(str, arguments)]


def replicode(cache, *arguments, seconds=120, cwd=None, memory=None, file_size=None, **changes):
    """A command that has ended, by itself or at the end of its processor time; one that waits for ever is a failure."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WAIT * seconds,
        cwd=cwd,
        env=environment(cache, **changes),
        preexec_fn=limited(seconds, memory, file_size),
    )


def answered(cache, *arguments, **options):
    """The JSON of a command, and its exit status."""
    done = replicode(cache, *arguments, "--json", **options)
    return json.loads(done.stdout) | {"exit": done.returncode}


def python(cache, program, seconds=120, **changes):
    """What a program prints as JSON on its last line."""
    done = subprocess.run(
        [PYTHON, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=WAIT * seconds,
        env=environment(cache, **changes),
        preexec_fn=limited(seconds),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
