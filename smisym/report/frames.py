"""Grids -> tables of pandas, labelled arrays of xarray: an optional extra, ``pip install 'smisym[tables]'``."""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.base.cards import Grid, Variable
from smisym.base.extras import needed


def dataframe(grid: Grid) -> Any:
    """A pandas DataFrame with one line for each place along ``grid.lines``: coordinates first, then variables."""
    pandas = needed("pandas", "tables")
    sizes = [len(grid.coordinates[dim]) for dim in grid.lines]
    columns: dict[str, Any] = {}
    for axis, dim in enumerate(grid.lines):
        columns[dim] = _along(np.asarray(grid.coordinates[dim]), (axis,), sizes)
    for name, variable in grid.variables.items():
        if set(variable.dims) <= set(grid.lines):
            columns[name] = _along(variable.values, tuple(map(grid.lines.index, variable.dims)), sizes)
    return pandas.DataFrame(columns, index=None if grid.lines else [0])


def dataset(grid: Grid) -> Any:
    """An xarray Dataset: variables with ``long_name`` and ``units``, settings as attributes."""
    xarray = needed("xarray", "tables")
    alpha = {"long_name": "samples per dimension", "units": "N / D"}
    coordinates = {
        dim: (dim, np.asarray(values), alpha if dim == "alpha" else {}) for dim, values in grid.coordinates.items()
    }
    variables = {name: (v.dims, v.values, _about(v)) for name, v in grid.variables.items()}
    return xarray.Dataset(variables, coordinates, dict(grid.attributes))


def _about(variable: Variable) -> dict[str, str]:
    return {"long_name": variable.about} | ({"units": variable.unit} if variable.unit else {})


def _along(values: np.ndarray, axes: tuple[int, ...], sizes: list[int]) -> np.ndarray:
    """The values along some axes of a block of these sizes, repeated along the others, as one column."""
    shape = [size if axis in axes else 1 for axis, size in enumerate(sizes)]
    ordered = np.transpose(values, np.argsort(axes)) if axes else values
    return np.broadcast_to(ordered.reshape(shape), sizes).reshape(-1)
