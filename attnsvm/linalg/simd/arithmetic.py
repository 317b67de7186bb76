"""Eight float64 lanes as one value inside numba-compiled code: arithmetic, comparisons, exp.

Lanes do not interact: the result in a lane is independent of the other lanes.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_cast

LANES = 8


class Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of eight float64 lanes."""

    def __init__(self) -> None:
        super().__init__(name="Lanes8")


class Mask(types.Type):  # type: ignore[misc]
    """Numba's type of eight truth values, one for each lane."""

    def __init__(self) -> None:
        super().__init__(name="Mask8")


LANES_TYPE, MASK_TYPE = Lanes(), Mask()
DOUBLE = ir.DoubleType()
VECTOR = ir.VectorType(DOUBLE, LANES)
INTEGERS = ir.VectorType(ir.IntType(64), LANES)
BITS = ir.VectorType(ir.IntType(1), LANES)


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


@register_default(Mask)
class _MaskModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, BITS)


@lower_cast(types.Number, Lanes)
def _splat(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    """Build eight lanes that hold one number."""
    number = context.cast(builder, value, source, types.float64)
    one = builder.insert_element(
        ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0)
    )
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), places)


def _operator(symbol: Any, count: int, build: Callable[..., Any], result: Any, of: Any) -> None:
    """Define an operator on values of the type `of`; numbers become lanes."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            known = (type(of), types.Number) if of is LANES_TYPE else type(of)
            if len(args) != count or not any(isinstance(a, type(of)) for a in args):
                return None
            if not all(isinstance(a, known) for a in args):
                return None
            return signature(result, *[of] * count)

    infer_global(symbol)(Template)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return build(builder, *args)

    lower_builtin(symbol, *[type(of)] * count)(codegen)


def _contracted(name: str) -> Callable[..., Any]:
    """Return the operation: a product and a sum may become one multiply-add."""
    return lambda builder, a, b: getattr(builder, name)(a, b, flags=("contract",))


def _compared(symbol: str) -> Callable[..., Any]:
    """Return the comparison: false where one of the two is NaN, but for !=."""
    if symbol == "!=":
        return lambda builder, a, b: builder.fcmp_unordered(symbol, a, b)
    return lambda builder, a, b: builder.fcmp_ordered(symbol, a, b)


for _symbol, _in_place, _name in (
    (operator.add, operator.iadd, "fadd"),
    (operator.sub, operator.isub, "fsub"),
    (operator.mul, operator.imul, "fmul"),
    (operator.truediv, operator.itruediv, "fdiv"),
):
    for _one in (_symbol, _in_place):
        _operator(_one, 2, _contracted(_name), LANES_TYPE, LANES_TYPE)
for _symbol, _name in (
    (operator.gt, ">"), (operator.ge, ">="), (operator.lt, "<"), (operator.le, "<="),
    (operator.eq, "=="), (operator.ne, "!="),
):  # fmt: skip
    _operator(_symbol, 2, _compared(_name), MASK_TYPE, LANES_TYPE)
_operator(operator.and_, 2, lambda builder, a, b: builder.and_(a, b), MASK_TYPE, MASK_TYPE)
_operator(operator.or_, 2, lambda builder, a, b: builder.or_(a, b), MASK_TYPE, MASK_TYPE)
_operator(operator.invert, 1, lambda builder, a: builder.not_(a), MASK_TYPE, MASK_TYPE)
_operator(operator.neg, 1, lambda builder, a: builder.fneg(a), LANES_TYPE, LANES_TYPE)
_operator(abs, 1, lambda builder, a: _call("fabs")(builder, [a]), LANES_TYPE, LANES_TYPE)


@intrinsic
def where(typingctx: Any, mask: Any, a: Any, b: Any) -> Any:
    """Return a in the lanes of the mask, b in the others."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return LANES_TYPE(MASK_TYPE, LANES_TYPE, LANES_TYPE), codegen


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    """Return whether the mask is true in at least one lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = builder.bitcast(args[0], ir.IntType(LANES))
        return builder.icmp_unsigned("!=", lanes, ir.Constant(ir.IntType(LANES), 0))

    return types.boolean(MASK_TYPE), codegen


def lanes_at(builder: Any, address: Any, index: Any) -> Any:
    """Return the LLVM pointer to entry `index` of the array at an address."""
    return builder.gep(builder.inttoptr(address, VECTOR.as_pointer()), [index])


@intrinsic
def fill(typingctx: Any, value: Any) -> Any:
    """Return eight lanes that hold the number `value`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(context, builder, types.float64, LANES_TYPE, args[0])

    return LANES_TYPE(types.float64), codegen


def _operation(build: Callable[[Any, list[Any]], Any], count: int, name: str) -> Any:
    """Return an intrinsic that maps `count` lanes values to one by `build(builder, args)`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return build(builder, list(args))

    signature = LANES_TYPE(*[LANES_TYPE] * count)
    makers = {
        1: lambda typingctx, a: (signature, codegen),
        2: lambda typingctx, a, b: (signature, codegen),
        3: lambda typingctx, a, b, c: (signature, codegen),
    }
    maker = makers[count]
    maker.__name__ = maker.__qualname__ = name
    return intrinsic(maker)


def _call(name: str) -> Callable[[Any, list[Any]], Any]:
    def build(builder: Any, args: list[Any]) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * len(args))
        full = f"llvm.{name}.v{LANES}f64"
        function = cgutils.get_or_insert_function(builder.module, kind, full)
        return builder.call(function, args)

    return build


def _where_greater(builder: Any, args: list[Any]) -> Any:
    return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])


def _power_of_two(builder: Any, args: list[Any]) -> Any:
    bits = builder.bitcast(args[0], INTEGERS)
    shifted = builder.shl(bits, ir.Constant(INTEGERS, [52] * LANES))
    one = ir.Constant(INTEGERS, [1023 << 52] * LANES)
    return builder.bitcast(builder.add(shifted, one), VECTOR)


multiply_add = _call("fma")
fma = _operation(multiply_add, 3, "fma")
sqrt = _operation(_call("sqrt"), 1, "sqrt")
power_of_two = _operation(_power_of_two, 1, "power_of_two")
"""2^k, for the integer k in the low bits of MAGIC + k."""

maximum = _operation(lambda builder, args: _where_greater(builder, [*args, *args]), 2, "maximum")
"""The larger of two values; the second one where one is NaN."""

minimum = _operation(
    lambda builder, args: _where_greater(builder, [*args[::-1], *args]), 2, "minimum"
)
"""The smaller of two values; the second one where one is NaN."""


def _exponent(builder: Any, args: list[Any]) -> Any:
    """Build e of x = m 2^e, 1/2 <= m < 1: its bits in the low ones of 2^52, less 2^52 + 1022."""
    bits = builder.bitcast(args[0], INTEGERS)
    shifted = builder.lshr(bits, ir.Constant(INTEGERS, [52] * LANES))
    placed = builder.or_(shifted, ir.Constant(INTEGERS, [0x433 << 52] * LANES))
    offset = ir.Constant(VECTOR, [2.0**52 + 1022] * LANES)
    return builder.fsub(builder.bitcast(placed, VECTOR), offset)


def _mantissa(builder: Any, args: list[Any]) -> Any:
    bits = builder.bitcast(args[0], INTEGERS)
    kept = builder.and_(bits, ir.Constant(INTEGERS, [(1 << 52) - 1] * LANES))
    placed = builder.or_(kept, ir.Constant(INTEGERS, [1022 << 52] * LANES))
    return builder.bitcast(placed, VECTOR)


exponent = _operation(_exponent, 1, "exponent")
"""e of a normal number x = m 2^e > 0 with 1/2 <= m < 1."""

mantissa = _operation(_mantissa, 1, "mantissa")
"""m of a normal number x = m 2^e > 0 with 1/2 <= m < 1."""

MAGIC = 6755399441055744.0
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10


@njit(inline="always")
def exp(x: Any) -> Any:
    """Return e^x to one or two ulp for -708 < x <= 708; e^708 above, 0 below and for NaN."""
    low, high = fill(-708.0), fill(708.0)
    y = where(x > low, x, low)
    y = where(high > y, y, high)
    shifted = fma(y, fill(LOG2_E), fill(MAGIC))
    k = shifted - fill(MAGIC)
    r = fma(k, fill(-LN2_HIGH), y)
    r = fma(k, fill(-LN2_LOW), r)
    # 1 + r + r^2 q, q of degree 11 by pairs: a third of the latency of Horner's rule
    r2 = r * r
    r4 = r2 * r2
    q01 = fma(r, fill(1.0 / 6.0), fill(0.5))
    q23 = fma(r, fill(1.0 / 120.0), fill(1.0 / 24.0))
    q45 = fma(r, fill(1.0 / 5040.0), fill(1.0 / 720.0))
    q67 = fma(r, fill(1.0 / 362880.0), fill(1.0 / 40320.0))
    q89 = fma(r, fill(1.0 / 39916800.0), fill(1.0 / 3628800.0))
    rest = fma(r, fill(1.0 / 6227020800.0), fill(1.0 / 479001600.0))
    q = fma(r4, fma(r2, rest, q89), fma(r2, q67, q45))
    q = fma(r4, q, fma(r2, q23, q01))
    p = fma(r2, q, r) + fill(1.0)
    return where(x > low, p * power_of_two(shifted), 0.0)


@njit(inline="always")
def expm1(x: Any) -> Any:
    """Return e^x - 1 with the relative accuracy of `exp`."""
    return where(abs(x) < 0.5, _expm1_of_small(x), exp(x) - 1.0)


@njit(inline="always")
def _expm1_of_small(x: Any) -> Any:
    """Return x (1 + x/2 (1 + x/3 (1 + ...))) for |x| < 1/2."""
    p = fill(1.0)
    for count in range(17, 1, -1):
        p = fma(p * x, fill(1.0 / count), fill(1.0))
    return p * x


TINIEST = 2.2250738585072014e-308
"""The smallest normal number."""


@njit(inline="always")
def split(x: Any) -> Any:
    """Return m and e of x = m 2^e > 0 with 1/2 <= m < 1."""
    small = x < TINIEST
    normal = where(small, x * fill(2.0**54), x)
    return mantissa(normal), exponent(normal) - where(small, 54, 0)


@njit(inline="always")
def logarithm(x: Any) -> Any:
    """Return log x to one ulp; -inf for 0, NaN for x < 0 and for NaN.

    log m = f - f^2 / 2 + s (f^2 / 2 + R(s^2)) with f = m - 1, s = f / (2 + f), and the polynomial R
    of the C library fdlibm.
    """
    zero, one, half = fill(0.0), fill(1.0), fill(0.5)
    m, e = split(x)
    low = where(m < 0.7071067811865476, one, zero)
    f, e = fma(low, m, m) - one, e - low
    s, square = f / (fill(2.0) + f), half * f * f
    z = s * s
    p = fill(1.479819860511658591e-01)
    p = fma(p, z, fill(1.531383769920937332e-01))
    p = fma(p, z, fill(1.818357216161805012e-01))
    p = fma(p, z, fill(2.222219843214978396e-01))
    p = fma(p, z, fill(2.857142874366239149e-01))
    p = fma(p, z, fill(3.999999999940941908e-01))
    p = fma(p, z, fill(6.666666666666735130e-01))
    rest = fma(s, square + z * p, e * fill(LN2_LOW))
    found = fma(e, fill(LN2_HIGH), f - (square - rest))
    found = where(x > zero, found, where(x == zero, -np.inf, np.nan))
    return where(x == np.inf, x, found)


@njit(inline="always")
def log1p(x: Any) -> Any:
    """Return log(1 + x) for x >= -1: the rounding of 1 + x cancels in log(u) / (u - 1)."""
    u = fill(1.0) + x
    rest = u - fill(1.0)
    return where(rest == 0.0, x, x * (logarithm(u) / rest))
