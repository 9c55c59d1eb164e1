"""What is installed is one package: a project with rooms of the same names is not disturbed by it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("theory", "codegen", "validation")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds what the wheel installs, built from a copy: what an older build left is not in it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*ROOMS, "replicode"):
        shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    source = str(folder / "source")
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), source], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "site"), str(wheel)], check=True)
    return folder / "site"


def test_a_project_with_rooms_of_the_same_names_runs_its_tests(installed, tmp_path):
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(f"OWN = {room!r}\n")
    (tmp_path / "test_own.py").write_text(
        "import codegen, theory, validation\n"
        "import replicode\n"
        "from replicode.validation.pytest_plugin import replicode_properties as plugin\n"
        "def test_own(replicode_properties):\n"
        "    assert [m.OWN for m in (theory, codegen, validation)] == ['theory', 'codegen', 'validation']\n"
        f"    assert replicode.__file__.startswith({str(installed)!r})\n"
        "    assert replicode.solve('1 + x', tokens=1, alpha=2, nu=1, digits=3).converged\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_own.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed), "PATH": "", "REPLICODE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "1 passed" in run.stdout, run.stdout + run.stderr


def test_the_wheel_holds_one_package_and_all_of_it(installed):
    assert not any((installed / room).exists() for room in ROOMS)
    for room in ROOMS:
        assert _sources(installed / "replicode" / room) == _sources(ROOT / room)


def _sources(folder):
    return {p.relative_to(folder) for p in folder.rglob("*") if p.suffix in (".py", ".c", ".typed")}


def test_every_package_is_listed():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "replicode").rglob("__init__.py")}
    for room in ROOMS:
        found |= {"replicode." + ".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / room).rglob("__init__.py")}
    assert set(listed) == found


def test_rooms_are_imported_by_their_full_names():
    short = re.compile(rf"^\s*(from|import) ({'|'.join(ROOMS)})\b", re.M)
    for room in (*ROOMS, "replicode", "tests", "benchmarks"):
        for path in (ROOT / room).rglob("*.py"):
            if path.name != Path(__file__).name:
                assert not short.search(path.read_text()), path
