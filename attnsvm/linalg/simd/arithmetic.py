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
from numba.extending import lower_builtin, lower_cast

LANES = 8


class Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of eight float64 numbers, or of eight truth values, one in each lane."""


LANES_TYPE, MASK_TYPE = Lanes("Lanes8"), Lanes("Mask8")
VECTOR = ir.VectorType(ir.DoubleType(), LANES)
INTEGERS = ir.VectorType(ir.IntType(64), LANES)
BITS = ir.VectorType(ir.IntType(1), LANES)


@register_default(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, BITS if kind == MASK_TYPE else VECTOR)


@lower_cast(types.Number, LANES_TYPE)
def _splat(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    """Build eight lanes that hold one number."""
    number, empty = context.cast(builder, value, source, types.float64), VECTOR(ir.Undefined)
    first = builder.insert_element(empty, number, ir.IntType(32)(0))
    places = ir.VectorType(ir.IntType(32), LANES)([0] * LANES)
    return builder.shuffle_vector(first, empty, places)


def operation(*kinds: Any, result: Any = LANES_TYPE, symbol: Any = None) -> Callable[..., Any]:
    """Return a decorator of a function that builds the LLVM code of an operation on lanes.

    Compiled code calls the function without the builder, or uses the operator `symbol`, with
    arguments of these types; numbers become lanes.
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        name = build if symbol is None else symbol

        class Template(AbstractTemplate):  # type: ignore[misc]
            key = name

            def generic(self, args: Any, kws: Any) -> Any:
                of_lanes = [isinstance(a, Lanes) for a in args]
                if len(args) != len(kinds) or not (symbol is None or any(of_lanes)):
                    return None
                for a, kind in zip(args, kinds, strict=True):
                    if a != kind and not (kind is LANES_TYPE and isinstance(a, types.Number)):
                        return None
                return signature(result, *kinds)

        infer_global(name, types.Function(Template))
        lower_builtin(name, *kinds)(lambda context, builder, signature, args: build(builder, *args))
        return build

    return decorate


def _llvm(name: str) -> Callable[..., Any]:
    """Return what builds the call of the function of LLVM of this name."""

    def build(builder: Any, *args: Any) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * len(args))
        full = f"llvm.{name}.v{LANES}f64"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, full), args)

    return build


def _contracted(name: str) -> Callable[..., Any]:
    """Return what builds the operation: a product and a sum may become one multiply-add."""
    return lambda builder, a, b: getattr(builder, name)(a, b, flags=("contract",))


def _compared(symbol: str) -> Callable[..., Any]:
    """Return what builds the comparison: false where one of the two is NaN, but for !=."""
    name = "fcmp_unordered" if symbol == "!=" else "fcmp_ordered"
    return lambda builder, a, b: getattr(builder, name)(symbol, a, b)


for _name, _symbols in {
    "fadd": (operator.add, operator.iadd),
    "fsub": (operator.sub, operator.isub),
    "fmul": (operator.mul, operator.imul),
    "fdiv": (operator.truediv, operator.itruediv),
}.items():
    for _symbol in _symbols:
        operation(LANES_TYPE, LANES_TYPE, symbol=_symbol)(_contracted(_name))
for _name, _symbol in {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}.items():
    operation(LANES_TYPE, LANES_TYPE, result=MASK_TYPE, symbol=_symbol)(_compared(_name))
for _symbol in (operator.and_, operator.or_):
    operation(MASK_TYPE, MASK_TYPE, result=MASK_TYPE, symbol=_symbol)(
        lambda builder, a, b, name=_symbol.__name__: getattr(builder, name)(a, b)
    )
operation(MASK_TYPE, result=MASK_TYPE, symbol=operator.invert)(lambda builder, a: builder.not_(a))
operation(LANES_TYPE, symbol=operator.neg)(lambda builder, a: builder.fneg(a))
operation(LANES_TYPE, symbol=abs)(_llvm("fabs"))
fma, sqrt = (operation(*[LANES_TYPE] * n)(_llvm(name)) for n, name in ((3, "fma"), (1, "sqrt")))


@operation(LANES_TYPE)
def fill(builder: Any, value: Any) -> Any:
    """Return eight lanes that hold the number `value`."""
    return value


@operation(MASK_TYPE, LANES_TYPE, LANES_TYPE)
def where(builder: Any, mask: Any, a: Any, b: Any) -> Any:
    """Return a in the lanes of the mask, b in the others."""
    return builder.select(mask, a, b)


@operation(MASK_TYPE, result=types.boolean)
def any_lane(builder: Any, mask: Any) -> Any:
    """Return whether the mask is true in at least one lane."""
    return builder.icmp_unsigned(
        "!=", builder.bitcast(mask, ir.IntType(LANES)), ir.IntType(LANES)(0)
    )


@operation(LANES_TYPE, LANES_TYPE)
def maximum(builder: Any, a: Any, b: Any) -> Any:
    """Return the larger of two values; the second one where one is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation(LANES_TYPE, LANES_TYPE)
def minimum(builder: Any, a: Any, b: Any) -> Any:
    """Return the smaller of two values; the second one where one is NaN."""
    return builder.select(builder.fcmp_ordered(">", b, a), a, b)


def _bits(value: int) -> Any:
    return INTEGERS([value] * LANES)


@operation(LANES_TYPE)
def power_of_two(builder: Any, x: Any) -> Any:
    """Return 2^k, for the integer k in the low bits of x = MAGIC + k."""
    shifted = builder.shl(builder.bitcast(x, INTEGERS), _bits(52))
    return builder.bitcast(builder.add(shifted, _bits(1023 << 52)), VECTOR)


@operation(LANES_TYPE)
def exponent(builder: Any, x: Any) -> Any:
    """Return e of a normal number x = m 2^e > 0 with 1/2 <= m < 1.

    Its bits are put in the low ones of 2^52, of which 2^52 + 1022 is subtracted.
    """
    shifted = builder.lshr(builder.bitcast(x, INTEGERS), _bits(52))
    placed = builder.bitcast(builder.or_(shifted, _bits(0x433 << 52)), VECTOR)
    return builder.fsub(placed, VECTOR([2.0**52 + 1022] * LANES))


@operation(LANES_TYPE)
def mantissa(builder: Any, x: Any) -> Any:
    """Return m of a normal number x = m 2^e > 0 with 1/2 <= m < 1."""
    kept = builder.and_(builder.bitcast(x, INTEGERS), _bits((1 << 52) - 1))
    return builder.bitcast(builder.or_(kept, _bits(1022 << 52)), VECTOR)


MAGIC = 6755399441055744.0
LOG2_E = 1.4426950408889634
LN2_HIGH = 0.6931471803691238
LN2_LOW = 1.9082149292705877e-10


@njit(inline="always")
def exp(x: Any) -> Any:
    """Return e^x to one or two ulp for -708 < x <= 708; e^708 above, 0 below and for NaN."""
    y = where(x > -708.0, x, -708.0)
    y = where(y < 708.0, y, 708.0)
    shifted = fma(y, LOG2_E, MAGIC)
    k = shifted - MAGIC
    r = fma(k, -LN2_HIGH, y)
    r = fma(k, -LN2_LOW, r)
    # 1 + r + r^2 q, q of degree 11 by pairs: a third of the latency of Horner's rule
    r2 = r * r
    r4 = r2 * r2
    q01 = fma(r, 1 / 6, 1 / 2)
    q23 = fma(r, 1 / 120, 1 / 24)
    q45 = fma(r, 1 / 5040, 1 / 720)
    q67 = fma(r, 1 / 362880, 1 / 40320)
    q89 = fma(r, 1 / 39916800, 1 / 3628800)
    rest = fma(r, 1 / 6227020800, 1 / 479001600)
    q = fma(r4, fma(r2, rest, q89), fma(r2, q67, q45))
    q = fma(r4, q, fma(r2, q23, q01))
    p = fma(r2, q, r) + 1.0
    return where(x > -708.0, p * power_of_two(shifted), 0.0)


@njit(inline="always")
def expm1(x: Any) -> Any:
    """Return e^x - 1 with the relative accuracy of `exp`."""
    return where(abs(x) < 0.5, _expm1_of_small(x), exp(x) - 1.0)


@njit(inline="always")
def _expm1_of_small(x: Any) -> Any:
    """Return x (1 + x/2 (1 + x/3 (1 + ...))) for |x| < 1/2."""
    p = fill(1.0)
    for count in range(17, 1, -1):
        p = fma(p * x, 1.0 / count, 1.0)
    return p * x


TINIEST = 2.2250738585072014e-308
"""The smallest normal number."""


@njit(inline="always")
def split(x: Any) -> Any:
    """Return m and e of x = m 2^e > 0 with 1/2 <= m < 1."""
    small = x < TINIEST
    normal = where(small, x * 2.0**54, x)
    return mantissa(normal), exponent(normal) - where(small, 54, 0)


@njit(inline="always")
def logarithm(x: Any) -> Any:
    """Return log x to one ulp; -inf for 0, NaN for x < 0 and for NaN.

    log m = f - f^2 / 2 + s (f^2 / 2 + R(s^2)) with f = m - 1, s = f / (2 + f), and the polynomial R
    of the C library fdlibm.
    """
    m, e = split(x)
    low = where(m < 0.7071067811865476, 1.0, 0.0)
    f, e = fma(low, m, m) - 1.0, e - low
    s, square = f / (2.0 + f), 0.5 * f * f
    z = s * s
    p = fma(1.479819860511658591e-01, z, 1.531383769920937332e-01)
    p = fma(p, z, 1.818357216161805012e-01)
    p = fma(p, z, 2.222219843214978396e-01)
    p = fma(p, z, 2.857142874366239149e-01)
    p = fma(p, z, 3.999999999940941908e-01)
    p = fma(p, z, 6.666666666666735130e-01)
    rest = fma(s, square + z * p, e * LN2_LOW)
    value = fma(e, LN2_HIGH, f - (square - rest))
    value = where(x > 0.0, value, where(x == 0.0, -np.inf, np.nan))
    return where(x == np.inf, x, value)


@njit(inline="always")
def log1p(x: Any) -> Any:
    """Return log(1 + x) for x >= -1: the rounding of 1 + x cancels in log(u) / (u - 1)."""
    u = 1.0 + x
    rest = u - 1.0
    return where(rest == 0.0, x, x * (logarithm(u) / rest))
