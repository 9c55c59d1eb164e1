"""Wheel and sdist tried as a user would: `python benchmarks/clean_install.py dist PYTHON...`, a new environment each.

Checks that the command runs, that its version is that of the package, and that a number comes out right.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

POINT = ["softmax", "--tokens", "2", "--alpha", "4", "--nu", "2", "--noise", "0.3", "--json"]


def tried(python, archive, folder):
    """What the command of a clean environment says, with this archive installed in it."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    run = [str(Path(folder) / "bin" / "python"), "-m"]
    subprocess.run([*run, "pip", "install", "-q", "--disable-pip-version-check", str(archive)], check=True)
    environment = {"REPLICODE_CACHE": str(Path(folder) / "cache"), "PATH": ""}
    version, solved = (
        subprocess.run([*run, "replicode", *arguments], check=True, capture_output=True, text=True, env=environment)
        for arguments in (["--version"], ["solve", *POINT])
    )
    return version.stdout.split()[-1], json.loads(solved.stdout)


def main(folder, *pythons):
    archives = sorted([*Path(folder).glob("*.whl"), *Path(folder).glob("*.tar.gz")])
    assert len(archives) == 2, f"one wheel and one sdist in {folder}: {archives}"
    for python in pythons or (sys.executable,):
        for archive in archives:
            with tempfile.TemporaryDirectory() as clean:
                version, found = tried(python, archive, clean)
            assert f"-{version}" in archive.name, (version, archive.name)
            assert abs(found["test_risk"] - 0.539931847) < 1e-8, found["test_risk"]
            print(f"{python}: {archive.name} {version}, test risk {found['test_risk']:.9f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
