"""Values between the nodes of a mesh for compiled loops: sums over six times six nodes by vectors of eight numbers.

One node after the other is looked up somewhere else, so that loops over them are not vectorised; rows of a stencil are.
Only importable where numba is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from smisym.kernels.stencil_weights import ORDER, powers

# Numbers of a vector, the last two of which count for nothing.
LANES = 8

_DOUBLE, _FAST = ir.DoubleType(), ("contract", "reassoc", "nsz")
_VECTOR = ir.VectorType(_DOUBLE, LANES)


def _constant(values: list[float]) -> ir.Constant:
    return ir.Constant(_VECTOR, [ir.Constant(_DOUBLE, value) for value in values])


def _everywhere(builder: Any, value: Any) -> Any:
    """A vector of one number."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [ir.Constant(ir.IntType(32), 0)] * LANES)
    return builder.shuffle_vector(one, one, mask)


def _weights(builder: Any, t: Any) -> Any:
    """What each node of a row counts for at t, by Horner's rule for all of them at once."""
    rows = np.zeros((ORDER, LANES))
    rows[:, :ORDER] = powers()
    t, found = _everywhere(builder, t), _constant(rows[-1].tolist())
    for row in rows[-2::-1]:
        found = builder.fadd(builder.fmul(found, t, flags=_FAST), _constant(row.tolist()), flags=_FAST)
    return found


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return make_array(kind)(context, builder, value=value).data


def _row(builder: Any, data: Any, at: Any) -> Any:
    return builder.bitcast(cgutils.gep(builder, data, at), _VECTOR.as_pointer())


# Many parameters: numbers and arrays, which compiled loops take one by one.
@intrinsic
def between(context: Any, table: Any, at: Any, stride: Any, w: Any, k: Any, step: Any, t: Any) -> Any:
    """The value of a table, rows of ``stride`` numbers, for a stencil whose first node is number ``at``: weights of its
    rows are w[k], w[k + step], ..., and those of its columns follow from t."""

    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        data, rows = (_data(target, builder, kinds[i], values[i]) for i in (0, 3))
        at, stride, k, step = values[1], values[2], values[4], values[5]
        found = None
        for _ in range(ORDER):
            weight = _everywhere(builder, builder.load(cgutils.gep(builder, rows, k)))
            term = builder.fmul(weight, builder.load(_row(builder, data, at), align=8), flags=_FAST)
            found = term if found is None else builder.fadd(found, term, flags=_FAST)
            at, k = builder.add(at, stride), builder.add(k, step)
        found = builder.fmul(found, _weights(builder, values[6]), flags=_FAST)
        function = builder.module.declare_intrinsic(
            "llvm.vector.reduce.fadd.v8f64", (), ir.FunctionType(_DOUBLE, [_DOUBLE, _VECTOR])
        )
        return builder.call(function, [ir.Constant(_DOUBLE, -0.0), found], fastmath=_FAST)

    return types.float64(table, types.intp, types.intp, w, types.intp, types.intp, types.float64), build


# Many parameters: numbers and arrays, which compiled loops take one by one.
@intrinsic
def shared_out(context: Any, table: Any, at: Any, stride: Any, w: Any, k: Any, step: Any, t: Any, share: Any) -> Any:
    """Adds to each node of the stencil its part of a share: the transpose of :func:`between`."""

    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        data, rows = (_data(target, builder, kinds[i], values[i]) for i in (0, 3))
        at, stride, k, step = values[1], values[2], values[4], values[5]
        own = builder.fmul(_weights(builder, values[6]), _everywhere(builder, values[7]), flags=_FAST)
        for _ in range(ORDER):
            weight = _everywhere(builder, builder.load(cgutils.gep(builder, rows, k)))
            place = _row(builder, data, at)
            new = builder.fadd(builder.load(place, align=8), builder.fmul(weight, own, flags=_FAST), flags=_FAST)
            builder.store(new, place, align=8)
            at, k = builder.add(at, stride), builder.add(k, step)
        return target.get_dummy_value()

    signature = types.none(table, types.intp, types.intp, w, types.intp, types.intp, types.float64, types.float64)
    return signature, build
