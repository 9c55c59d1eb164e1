"""The documentation site. Commands, the Python interface and a derivation are written before it is read."""

import inspect
from pathlib import Path

import click
from sphinx.application import Sphinx

import replicode
from replicode.cli import VERBS, main

project, author, release = "Replicode", "The Replicode developers", replicode.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Replicode"
exclude_patterns = ["build", "generated/part-*"]
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository; tests follow every link
GENERATED = Path(__file__).parent / "generated"


def commands() -> str:
    """What every verb's --help says, which is read off click."""
    pages = ["# Commands", "What `replicode VERB --help` says, examples included.", _help(main, "replicode", None)]
    group = click.Context(main, info_name="replicode")
    for verb in VERBS:
        command = main.get_command(group, verb)
        pages += [f"## {verb}", _help(command, verb, group)]
    return "\n\n".join(pages) + "\n"


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    return f"```text\n{command.get_help(context)}\n```"


def python() -> str:
    """The public names with their signatures and docstrings."""
    pages = ["# The Python interface", "`import replicode as rc`. All of these are names of `rc`."]
    for name in replicode.__all__:
        found = getattr(replicode, name)
        if name == "__version__":
            continue
        called = callable(found) and not inspect.isclass(found)
        signature = f"{name}{inspect.signature(found)}" if called else name
        pages += [f"## {name}", f"```python\n{signature}\n```", f"```text\n{inspect.getdoc(found) or ''}\n```"]
    return "\n\n".join(pages) + "\n"


def derivation() -> str:
    """The derivation of softmax, the model first and every step."""
    from replicode.verbs.derive import derivation_of

    return str(derivation_of("softmax", "spiked", None, steps=True)["markdown"])


def write_pages(_: Sphinx) -> None:
    """What is generated, into a folder that git does not keep."""
    GENERATED.mkdir(exist_ok=True)
    for name, page in (("commands", commands), ("python", python), ("derivation", derivation)):
        (GENERATED / f"{name}.md").write_text(page())


def setup(app: Sphinx) -> None:
    """Write the generated pages before anything is read."""
    app.connect("builder-inited", write_pages)
