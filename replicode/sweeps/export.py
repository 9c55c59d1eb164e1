"""The rows of a sweep as one table: CSV in the core, Parquet by pyarrow, netCDF by xarray and h5netcdf.

Nested values are spread over columns (`order_parameters_m_k`), lists are JSON text. Nothing in a file depends on when
or where a row was computed, so that the same points give the same table.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from replicode.codegen.writing import checked_file, write
from replicode.theory.errors import InputError, ReplicodeError

NEEDED = {".csv": (), ".parquet": ("pyarrow",), ".nc": ("xarray", "h5netcdf")}
Rows = Sequence[Mapping[str, Any]]
Columns = dict[str, list[Any]]


def checked_export(path: str | Path) -> Path:
    """The path, after a look at its suffix, at what is installed, and an attempt to write beside it."""
    suffix = Path(path).suffix.lower()
    if suffix not in NEEDED:
        raise InputError("export", str(path), f"a file whose name ends in {', '.join(NEEDED)}")
    if missing := [name for name in NEEDED[suffix] if not find_spec(name)]:
        raise ReplicodeError(f"{missing[0]} is not installed: install the extra, pip install 'replicode[export]'")
    return checked_file(path, "export")


def export(rows: Rows, asked: Sequence[str], path: str | Path) -> Path:
    """Write the rows in the format that the suffix names; `asked` are the columns of arguments."""
    table, suffix = columns(rows), Path(path).suffix.lower()
    if suffix == ".nc":
        return write(path, _netcdf(table, asked), "export")
    return write(path, as_csv(table) if suffix == ".csv" else _parquet(table), "export")


def columns(rows: Rows) -> Columns:
    """The rows column by column, nested values spread; None where a row has no such value."""
    flat = [{"_".join(path): value for path, value in spread(row)} for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def spread(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """A value, or the values of mappings within mappings, with the keys that lead to them."""
    if not isinstance(value, Mapping):
        return [(path, json.dumps(value) if isinstance(value, (list, tuple)) else value)]
    return [pair for key, inner in value.items() for pair in spread(inner, (*path, str(key)))]


def as_csv(table: Columns) -> str:
    """The table as text, a line for every row."""
    stream = StringIO()
    out = csv.writer(stream, lineterminator="\n")
    out.writerow(table)
    out.writerows(zip(*table.values()))
    return stream.getvalue()


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Numbers as floats where there are several kinds of them, anything else that is mixed as text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2:
        return values
    made = float if kinds == {int, float} else str
    return [None if value is None else made(value) for value in values]


def _parquet(table: Columns) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    stream = BytesIO()
    parquet.write_table(pa.table({name: _of_one_kind(values) for name, values in table.items()}), stream)
    return stream.getvalue()


def _netcdf(table: Columns, asked: Sequence[str]) -> bytes:
    return bytes(dataset(table, asked).to_netcdf(engine="h5netcdf"))


def dataset(table: Columns, asked: Sequence[str]) -> Any:
    """An xarray Dataset: an axis for every argument that varies where these form a grid, else one axis of points."""
    import numpy as np
    import xarray as xr

    columns = {name: _array(values) for name, values in table.items() if any(v is not None for v in values)}
    known = [name for name in asked if name in columns]
    axes = {name: list(dict.fromkeys(table[name])) for name in known}
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    count = len(next(iter(table.values())))
    places = list(zip(*(map(axes[name].index, table[name]) for name in axes))) if axes else [()]
    if math.prod(map(len, axes.values())) != count or len(set(places)) != count:
        return xr.Dataset({name: ("point", array) for name, array in columns.items()}).set_coords(known)
    order = np.argsort(np.ravel_multi_index(list(zip(*places)), [len(v) for v in axes.values()])) if axes else [0]
    shape = tuple(map(len, axes.values()))
    data = {n: (tuple(axes), array[order].reshape(shape)) for n, array in columns.items() if n not in known}
    fixed = {name: columns[name][0] for name in known if name not in axes}
    return xr.Dataset(data, coords={name: _array(values) for name, values in axes.items()} | fixed)


def _array(values: list[Any]) -> Any:
    """Values of one kind; a missing number is nan, missing text is empty."""
    import numpy as np

    values = _of_one_kind(values)
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else value for value in values], dtype=object)
    return np.array([math.nan if value is None else value for value in values])
