"""Arrays whose entries are eight lanes: `A[i, j]`, rows and blocks as views, in compiled code.

An array is an address and a shape, without a reference count: whoever calls compiled code keeps the
memory alive. Indices do not count from the end, and are not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache, reduce
from itertools import accumulate, pairwise
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.core.errors import TypingError
from numba.core.typing import signature, templates
from numpy.typing import NDArray

from attnsvm.linalg.simd.arithmetic import LANES, LANES_TYPE, VECTOR, Lanes

INTEGER = ir.IntType(64)
NamedTupleType = TypeVar("NamedTupleType", bound=type)


class LaneArray:
    """An array of `shape` whose entries are eight lanes, over a contiguous NumPy array (*shape, 8).

    In compiled code an index gives an entry or a view as in NumPy: `A[i, j]`, `A[i]`, `A[a:b]`,
    `A[:, k]`, `A[::2]`. `A[...] = x` writes an entry, and into a view a number, lanes or an array.
    Only there it has the transpose `T`, the matrix `rows` of all last axes, and the vector `flat`.
    """

    T: Any
    rows: Any
    flat: Any

    def __init__(self, array: NDArray[np.float64]) -> None:
        self.array, self.data = array, array.ctypes.data
        self.shape: tuple[int, ...] = array.shape[:-1]

    @property
    def _numba_type_(self) -> Any:
        """The type for compiled code; numba looks for this name before it searches for a type."""
        return _kind(len(self.shape))

    @staticmethod
    def several(*shapes: tuple[int, ...]) -> list[LaneArray]:
        """Return arrays of any values in one memory, which torch aligns to cache lines."""
        ends = list(accumulate(map(prod, shapes), initial=0))
        memory = torch.empty(ends[-1], LANES, dtype=torch.float64).numpy()
        parts = zip(pairwise(ends), shapes, strict=True)
        return [
            LaneArray(memory[first:end].reshape(*shape, LANES)) for (first, end), shape in parts
        ]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[index] = value


class LaneArrayType(types.Type):  # type: ignore[misc]
    """Numba's type of a `LaneArray` or of a view of one, which may have strides."""

    def __init__(self, ndim: int, contiguous: bool = True) -> None:
        self.ndim, self.contiguous = ndim, contiguous
        super().__init__(name=f"LaneArray({ndim}, {'contiguous' if contiguous else 'strided'})")


@register_default(LaneArrayType)
class _ArrayModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: LaneArrayType) -> None:
        counts = types.UniTuple(types.intp, kind.ndim)
        members = [("data", types.intp), ("shape", counts), ("strides", counts)]
        super().__init__(manager, kind, members[: 2 if kind.contiguous else 3])


_kind = cache(LaneArrayType)

extending.make_attribute_wrapper(LaneArrayType, "shape", "shape")


def arrays(named_tuple: NamedTupleType) -> NamedTupleType:
    """Decorate a NamedTuple of arrays: numba finds its type at once, not member by member."""

    @cache
    def kind(ndims: tuple[int, ...]) -> Any:
        return types.NamedTuple([_kind(ndim) for ndim in ndims], named_tuple)

    def type_of(value: Any, context: Any = None) -> Any:
        return kind(tuple([len(array.shape) for array in value]))

    extending.typeof_impl.register(named_tuple)(type_of)
    named_tuple._numba_type_ = property(type_of)  # type: ignore[attr-defined]
    return named_tuple


@extending.unbox(LaneArrayType)
def _unbox(kind: LaneArrayType, obj: Any, c: Any) -> Any:
    array = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    for name, part in (("data", types.intp), ("shape", types.UniTuple(types.intp, kind.ndim))):
        value = c.pyapi.object_getattr_string(obj, name)
        setattr(array, name, c.unbox(part, value).value)
        c.pyapi.decref(value)
    failed = cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
    return extending.NativeValue(array._getvalue(), is_error=failed)


class _View:
    """Data, shape and strides of an array while code is built."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self.context, self.builder, self.kind = context, builder, kind
        array = cgutils.create_struct_proxy(kind)(context, builder, value)
        self.data, self.shape = array.data, cgutils.unpack_tuple(builder, array.shape)
        strided = not kind.contiguous and cgutils.unpack_tuple(builder, array.strides)
        self.strides = strided or _strides(builder, self.shape)

    def offset(self, indices: Any) -> Any:
        """Return the number of entries before the one at these indices."""
        total = integer(0)
        for index, stride in zip(indices, self.strides, strict=False):
            total = self.builder.add(total, self.builder.mul(index, stride))
        return total

    def pointer(self, indices: Any) -> Any:
        """Return the pointer to an entry."""
        first = self.builder.inttoptr(self.data, VECTOR.as_pointer())
        return self.builder.gep(first, [self.offset(indices)])

    def item(self, kind: Any, index: Any) -> Any:
        """Return indices of the first entry, and shape and strides of the axes that are kept."""
        builder, kinds, items = self.builder, (kind,), [index]
        if isinstance(kind, types.BaseTuple):
            kinds, items = kind.types, cgutils.unpack_tuple(builder, index)
        first, shape, strides = [], [], []
        for axis, (item_kind, value) in enumerate(zip(kinds, items, strict=True)):
            size, stride = self.shape[axis], self.strides[axis]
            if isinstance(item_kind, types.Integer):
                value = self.context.cast(builder, value, item_kind, types.intp)
                first.append(value)
                continue
            cut = self.context.make_helper(builder, item_kind, value)
            whole = builder.icmp_signed("==", cut.stop, integer(2**63 - 1))
            stop = builder.select(whole, size, cut.stop)
            count = builder.sub(stop, cut.start)
            if item_kind.has_step:
                count = builder.sdiv(
                    builder.add(count, builder.sub(cut.step, integer(1))), cut.step
                )
                stride = builder.mul(stride, cut.step)
            first.append(cut.start)
            shape.append(count)
            strides.append(stride)
        return first, shape + self.shape[len(first) :], strides + self.strides[len(first) :]

    def view(self, kind: LaneArrayType, first: Any, shape: Any, strides: Any) -> Any:
        """Return the view, of this type, that begins at an entry."""
        bytes_before = self.builder.mul(self.offset(first), integer(8 * LANES))
        data = self.builder.add(self.data, bytes_before)
        return _new_array(self.context, self.builder, kind, data, shape, strides)


def integer(value: int) -> Any:
    """Return the LLVM constant of an index."""
    return ir.Constant(INTEGER, value)


def _strides(builder: Any, shape: Any) -> list[Any]:
    """Return the strides of a contiguous array."""
    strides = [integer(1)] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = builder.mul(shape[axis], strides[axis])
    return strides


def _new_array(context: Any, builder: Any, kind: Any, data: Any, shape: Any, strides: Any) -> Any:
    array = cgutils.create_struct_proxy(kind)(context, builder)
    array.data, array.shape = data, cgutils.pack_array(builder, shape, INTEGER)
    if not kind.contiguous:
        array.strides = cgutils.pack_array(builder, strides, INTEGER)
    return array._getvalue()


def _item(kind: LaneArrayType, index: Any) -> Any:
    """Return the type of `A[index]`; None if there is none."""
    items = index.types if isinstance(index, types.BaseTuple) else (index,)
    if len(items) > kind.ndim:
        return None
    cuts = [isinstance(item, types.SliceType) for item in items]
    if not all(isinstance(item, types.SliceType | types.Integer) for item in items):
        return None
    kept = kind.ndim - len(items) + sum(cuts)
    if not kept:
        return LANES_TYPE
    whole = not any(cuts[:-1]) and not (cuts[-1] and items[-1].has_step)
    return LaneArrayType(kept, kind.contiguous and whole)


@templates.infer_global(operator.getitem)
class _Get(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        result = _item(*args) if isinstance(args[0], LaneArrayType) else None
        return result and signature(result, args[0], types.unliteral(args[1]))


@templates.infer_global(operator.setitem)
class _Set(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        kind, index, value = args
        target = _item(kind, index) if isinstance(kind, LaneArrayType) else None
        if target is None:
            return None
        if not isinstance(value, LaneArrayType):
            value = LANES_TYPE
        elif value.ndim != getattr(target, "ndim", 0):
            return None
        return signature(types.none, kind, types.unliteral(index), value)


@extending.lower_builtin(operator.getitem, LaneArrayType, types.Any)
def _get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = _View(context, builder, signature.args[0], args[0])
    first, shape, strides = array.item(signature.args[1], args[1])
    if isinstance(signature.return_type, Lanes):
        return builder.load(array.pointer(first), align=8)
    return array.view(signature.return_type, first, shape, strides)


@extending.lower_builtin(operator.setitem, LaneArrayType, types.Any, types.Any)
def _set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    kind, index, source = signature.args
    array, value = _View(context, builder, kind, args[0]), args[2]
    first, shape, strides = array.item(index, args[1])
    if not shape:
        builder.store(value, array.pointer(first), align=8)
        return context.get_dummy_value()
    target_kind = LaneArrayType(len(shape), False)
    view = array.view(target_kind, first, shape, strides)
    target = _View(context, builder, target_kind, view)
    entries = None
    if isinstance(source, LaneArrayType):
        entries = _View(context, builder, source, value)
    with cgutils.loop_nest(builder, shape, INTEGER) as indices:
        entry = value if entries is None else builder.load(entries.pointer(indices), align=8)
        builder.store(entry, target.pointer(indices), align=8)
    return context.get_dummy_value()


@extending.overload(len)
def _len(A):  # type: ignore[no-untyped-def]  # numba compares signatures
    return (lambda A: A.shape[0]) if isinstance(A, LaneArrayType) else None


@templates.infer_getattr
class _Attributes(templates.AttributeTemplate):  # type: ignore[misc]
    key = LaneArrayType


def _attribute(name: str, kind_of: Callable[[Any], Any], layout: Callable[..., Any]) -> None:
    """Define an attribute, a view of an array: its type, and its shape and strides."""
    setattr(_Attributes, f"resolve_{name}", lambda self, kind: kind_of(kind))

    @extending.lower_getattr(LaneArrayType, name)
    def build(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        array = _View(context, builder, kind, value)
        return _new_array(context, builder, kind_of(kind), array.data, *layout(builder, array))


_attribute(
    "T",
    lambda kind: LaneArrayType(kind.ndim, False),
    lambda builder, array: (array.shape[::-1], array.strides[::-1]),
)
_attribute(
    "rows",
    lambda kind: LaneArrayType(2) if kind.contiguous else None,
    lambda builder, array: ([_product(builder, array.shape[:-1]), array.shape[-1]], []),
)
_attribute(
    "flat",
    lambda kind: LaneArrayType(1) if kind.contiguous else None,
    lambda builder, array: ([_product(builder, array.shape)], []),
)


def _product(builder: Any, sizes: Any) -> Any:
    return reduce(builder.mul, sizes, integer(1))


@extending.intrinsic
def reshaped(typingctx: Any, A: Any, shape: Any) -> Any:
    """Return the first entries of a contiguous array as an array of this shape, a tuple."""
    if not isinstance(A, LaneArrayType) or not A.contiguous:
        raise TypingError(f"{A}: must be a contiguous LaneArray")
    sizes = types.UniTuple(types.intp, len(shape))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, sizes = _View(context, builder, A, args[0]), cgutils.unpack_tuple(builder, args[1])
        return _new_array(context, builder, signature.return_type, array.data, sizes, [])

    return LaneArrayType(len(shape))(A, sizes), codegen


@extending.intrinsic
def as_matrix(typingctx: Any, A: Any) -> Any:
    """Return address, strides (2,) and shape (2,) of a matrix, or of a vector as one column."""
    if not isinstance(A, LaneArrayType) or A.ndim > 2:
        raise TypingError(f"{A}: must be a LaneArray with one or two axes")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = _View(context, builder, A, args[0])
        strides, shape = array.strides, array.shape
        if A.ndim == 1:
            strides, shape = [*strides, integer(0)], [*shape, integer(1)]
        return cgutils.pack_array(builder, [array.data, *strides, *shape], INTEGER)

    return types.UniTuple(types.intp, 5)(A), codegen
