"""Functions of one float for compiled loops: exp and log as inlined arithmetic without branches, so that a loop that
calls them is vectorised by the compiler and needs no vendor's library.

Only importable where numba is.  Errors are below one unit in the last place for exp, log (measured against mpmath,
``tests/kernels/test_scalars.py``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

from smisym.kernels.parts import Parts


@intrinsic
def _from_bits(context: Any, bits: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], target.get_value_type(types.float64))

    return types.float64(types.int64), build


@intrinsic
def _to_bits(context: Any, value: Any) -> Any:
    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], target.get_value_type(types.int64))

    return types.int64(types.float64), build


@intrinsic
def lent(context: Any, value: Any) -> Any:
    """An array whose owner outlives all that is done with it: views of it count no references.

    Counting is one atomic operation each time a view is made or let go; it took 40 % of the time of loops over short
    arrays (measured on chains of tables).
    """

    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _without_owner(target, builder, value, values[0])

    return value(value), build


def _without_owner(target: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = make_array(kind)(target, builder, value=value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    return value


class Kept(types.Type):
    """A tuple of arrays that stays where it is: what is handed on is its address, of eight bytes."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        super().__init__(f"Kept({inner.instance_class.__name__})")

    @property
    def key(self) -> Any:
        return self.inner


@register_model(Kept)
class _KeptModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, manager.lookup(kind.inner).get_value_type().as_pointer())


@infer_getattr
class _KeptAttributes(AttributeTemplate):
    key = Kept

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]
        inner = value.inner
        return inner.types[inner.fields.index(attr)] if attr in inner.fields else None


@lower_getattr_generic(Kept)
def _kept_attribute(target: Any, builder: Any, kind: Any, place: Any, name: str) -> Any:
    k = kind.inner.fields.index(name)
    loaded = builder.load(cgutils.gep_inbounds(builder, place, 0, k))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return _without_owner(target, builder, kind.inner.types[k], loaded)


@intrinsic
def kept(context: Any, value: Any) -> Any:
    """A named tuple of arrays, as long as the function runs that asks for it: functions that it is handed to have one
    parameter in the place of one for each number in it, of which there are seven an array.

    Arrays of it count no references, as with :func:`lent`.
    """

    def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = cgutils.alloca_once_value(builder, values[0])
        # An address from nowhere that the optimiser knows, so that no read, which it may do at any time since nothing
        # there ever changes, comes before what was written above.
        shape = ir.FunctionType(place.type, [place.type])
        return builder.call(ir.InlineAsm(shape, "", "=r,0,~{memory}", side_effect=True), [place])

    return Kept(value)(value), build


# Multiplication and addition may be one operation; nothing else is allowed to change.  References are not counted, a
# sixteenth of the time of compiling: such functions make no arrays and return none.
WITHIN: Any = {
    "error_model": "numpy", "pipeline_class": Parts, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
    "_nrt": False,
}  # fmt: skip
inlined = njit(fastmath={"contract"}, forceinline=True, **WITHIN)


def _reduction(name: str) -> Any:
    """The larger or smaller of two numbers, neither NaN, by the instruction that loops over it are vectorised with."""

    @intrinsic
    def of_two(context: Any, a: Any, b: Any) -> Any:
        def build(target: Any, builder: Any, signature: Any, values: Any) -> Any:
            double = ir.DoubleType()
            function = builder.module.declare_intrinsic(name, [double], ir.FunctionType(double, [double, double]))
            return builder.call(function, values, fastmath=("nnan", "nsz"))

        return types.float64(types.float64, types.float64), build

    return of_two


larger, smaller = _reduction("llvm.maxnum"), _reduction("llvm.minnum")

# 1.5 * 2^52: adding it rounds to a whole number, which then stands in the last bits.
_SHIFT, _SHIFT_BITS = 6755399441055744.0, 4843621399236968448
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


@inlined
def exp(x):  # type: ignore[no-untyped-def]
    """2^k times a polynomial on half a unit of log 2; zero and infinity beyond the range of floats."""
    bounded = -746.0 if x < -746.0 else x
    bounded = 710.0 if bounded > 710.0 else bounded
    n = bounded * 1.4426950408889634 + _SHIFT
    k = n - _SHIFT
    r = bounded - k * _LN2_HIGH
    r = r - k * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    whole = _to_bits(n) - _SHIFT_BITS
    half = whole >> 1
    # In two steps: the power of two alone may be no float.
    return p * _from_bits((half + 1023) << 52) * _from_bits((whole - half + 1023) << 52)


@inlined
def log(x):  # type: ignore[no-untyped-def]
    """k log 2 plus the series of the logarithm around one, as fdlibm has it."""
    tiny = x < 2.2250738585072014e-308
    y = x * 18014398509481984.0 if tiny else x
    bits = _to_bits(y)
    k = (bits - 4604544271217802189) >> 52
    f = _from_bits(bits - (k << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    t += z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    # Whole numbers to floats by their bits, which every processor does many at once.
    power = _from_bits(k + _SHIFT_BITS) - _SHIFT
    power = power - 54.0 if tiny else power
    found = power * _LN2_HIGH - ((half - (s * (half + t) + power * _LN2_LOW)) - f)
    found = math.inf if x == math.inf else found
    found = -math.inf if x == 0.0 else found
    return found if x >= 0.0 else math.nan


@inlined
def log1p(x):  # type: ignore[no-untyped-def]
    """log(u) x / (u - 1), u = 1 + x rounded: the errors of both cancel."""
    u = 1.0 + x
    found = log(u) * (x / (u - 1.0))
    found = x if u == 1.0 else found
    return log(u) if x > 1e300 else found


@inlined
def logaddexp(a, b):  # type: ignore[no-untyped-def]
    top = a if a > b else b
    # Equal infinities have no difference.
    gap = 0.0 if a == b else (a - b if a < b else b - a)
    return top + log1p(exp(gap))


@inlined
def sign(x):  # type: ignore[no-untyped-def]
    found = 1.0 if x > 0.0 else x
    return -1.0 if x < 0.0 else found


@inlined
def maximum(a, b):  # type: ignore[no-untyped-def]
    """NaN where either is, as numpy has it."""
    found = a if a > b else b
    return a if a != a else found


@inlined
def minimum(a, b):  # type: ignore[no-untyped-def]
    """NaN where either is, as numpy has it."""
    found = a if a < b else b
    return a if a != a else found


@inlined
def isfinite(x):  # type: ignore[no-untyped-def]
    return x - x == 0.0


@inlined
def where(condition, a, b):  # type: ignore[no-untyped-def]
    return a if condition else b


@inlined
def weight(x):  # type: ignore[no-untyped-def]
    """exp of what is not positive; zero below e^-700, whose arithmetic would be slow and which adds nothing."""
    alive = x > -700.0
    bounded = x if alive else -700.0
    n = bounded * 1.4426950408889634 + _SHIFT
    k = n - _SHIFT
    r = bounded - k * _LN2_HIGH
    r = r - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    # In a tree: no multiplication waits for the one before.
    low = (1.0 + r) + r2 * (0.5 + r * (1.0 / 6.0))
    middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    high = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    high += r4 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))
    p = low + r4 * (middle + r4 * high)
    found = _from_bits(_to_bits(p) + (_to_bits(n) << 52))
    return found if alive else 0.0


@inlined
def largest(values, start, count):  # type: ignore[no-untyped-def]
    """Of ``count`` entries from ``start`` on, none of them NaN."""
    found = values[start]
    for k in range(np.uint64(1), np.uint64(count)):
        found = larger(found, values[np.uint64(start) + k])
    return found


@inlined
def smallest(values, start, count):  # type: ignore[no-untyped-def]
    """Of ``count`` entries from ``start`` on, none of them NaN."""
    found = values[start]
    for k in range(np.uint64(1), np.uint64(count)):
        found = smaller(found, values[np.uint64(start) + k])
    return found


@inlined
def steepest(values, start, count, side, stride):  # type: ignore[no-untyped-def]
    """Largest change from one entry to the next along an axis of ``side`` entries that are ``stride`` apart, of an
    array of ``count`` entries from ``start`` on, none of them NaN."""
    found = 0.0
    for first in range(np.uint64(0), np.uint64(count), np.uint64(side * stride)):
        at = np.uint64(start) + first
        for k in range(np.uint64(0), np.uint64((side - 1) * stride)):
            found = larger(found, abs(values[at + k + np.uint64(stride)] - values[at + k]))
    return found


@njit(fastmath={"contract", "reassoc"}, forceinline=True, **WITHIN)
def total(values, start, count):  # type: ignore[no-untyped-def]
    """Sum of ``count`` entries from ``start`` on, in any order."""
    found = 0.0
    for k in range(np.uint64(0), np.uint64(count)):
        found += values[np.uint64(start) + k]
    return found
