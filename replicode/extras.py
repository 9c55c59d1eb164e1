"""Packages of an extra: imported where they are needed, with one message where they are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from replicode.theory.errors import ReplicodeError


def needed(module: str, extra: str) -> Any:
    """The module, or an error that names the extra which has it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0].replace("_", "-")
        message = f"{package} is not installed: install the extra, pip install 'replicode[{extra}]'"
        raise ReplicodeError(message) from None
