"""Arrays whose entries are eight lanes: `A[i, j]`, rows and blocks as views, in compiled code.

An array is an address and a shape, without a reference count: whoever calls compiled code keeps the
memory alive. Indices do not count from the end, and are not checked.
"""

from __future__ import annotations

import operator
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
from numba.core.typing import signature, templates
from numpy.typing import NDArray

from attnsvm.linalg.simd.arithmetic import LANES, LANES_TYPE, VECTOR

INTEGER = ir.IntType(64)
NamedTupleType = TypeVar("NamedTupleType", bound=type)


class LaneArray:
    """An array of `shape` whose entries are eight lanes, over a contiguous NumPy array (*shape, 8).

    In compiled code an index gives an entry or a view as in NumPy: `A[i, j]`, `A[i]`, `A[a:b]`,
    `A[:, k]`, `A[::2]`. `A[...] = x` writes an entry, and into a view a number, lanes or an array.
    Only there it has the transpose `T`, the matrix `rows` of all last axes, the vector `flat`, and
    `matrix`: a matrix is itself, a vector one column.
    """

    T: Any
    rows: Any
    flat: Any
    matrix: Any

    def __init__(self, array: NDArray[np.float64]) -> None:
        self.array = array
        self.shape: tuple[int, ...] = array.shape[:-1]
        self.place = array.ctypes.data, self.shape

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
    """Return address and shape: a tuple of both is laid out as the array is."""
    place = c.pyapi.object_getattr_string(obj, "place")
    shape = types.UniTuple(types.intp, kind.ndim)
    array = c.unbox(types.Tuple((types.intp, shape)), place)
    c.pyapi.decref(place)
    return array


class View:
    """Address, shape and strides of an array while code is built."""

    def __init__(self, context: Any, builder: Any, kind: LaneArrayType, value: Any) -> None:
        self.builder = builder
        array = cgutils.create_struct_proxy(kind)(context, builder, value)
        self.data, self.shape = array.data, cgutils.unpack_tuple(builder, array.shape)
        if not kind.contiguous:
            self.strides = cgutils.unpack_tuple(builder, array.strides)
            return
        sizes = accumulate(self.shape[:0:-1], builder.mul, initial=integer(1))
        self.strides = [*sizes][::-1]

    def pointer(self, indices: Any) -> Any:
        """Return the pointer to an entry, the first one behind these indices."""
        builder, total = self.builder, integer(0)
        for index, stride in zip(indices, self.strides, strict=False):
            total = builder.add(total, builder.mul(index, stride))
        return builder.gep(builder.inttoptr(self.data, VECTOR.as_pointer()), [total])

    def part(self, context: Any, kind: Any, index: Any) -> tuple[Any, list[Any], list[Any]]:
        """Return the pointer to the first entry of `A[index]`, its shape and its strides."""
        builder, items = self.builder, [(kind, index)]
        if isinstance(kind, types.BaseTuple):
            items = [*zip(kind.types, cgutils.unpack_tuple(builder, index), strict=True)]
        first, shape, strides = [], [], []
        for (item, value), size, stride in zip(items, self.shape, self.strides, strict=False):
            if isinstance(item, types.Integer):
                first.append(context.cast(builder, value, item, types.intp))
                continue
            cut = context.make_helper(builder, item, value)
            whole = builder.icmp_signed("==", cut.stop, integer(2**63 - 1))
            count = builder.sub(builder.select(whole, size, cut.stop), cut.start)
            if item.has_step:
                up = builder.sub(cut.step, integer(1))
                count = builder.sdiv(builder.add(count, up), cut.step)
                stride = builder.mul(stride, cut.step)
            first.append(cut.start)
            shape.append(count)
            strides.append(stride)
        count = len(items)
        return self.pointer(first), shape + self.shape[count:], strides + self.strides[count:]


def integer(value: int) -> Any:
    """Return the LLVM constant of an index."""
    return ir.Constant(INTEGER, value)


def _new_array(context: Any, builder: Any, kind: Any, data: Any, shape: Any, strides: Any) -> Any:
    array = cgutils.create_struct_proxy(kind)(context, builder)
    array.data, array.shape = data, cgutils.pack_array(builder, shape, INTEGER)
    if not kind.contiguous:
        array.strides = cgutils.pack_array(builder, strides, INTEGER)
    return array._getvalue()


def _item(kind: Any, index: Any) -> Any:
    """Return the type of `A[index]`; None if there is none."""
    items = index.types if isinstance(index, types.BaseTuple) else (index,)
    if not isinstance(kind, LaneArrayType) or len(items) > kind.ndim:
        return None
    cuts = [isinstance(item, types.SliceType) for item in items]
    kept = kind.ndim - len(items) + sum(cuts)
    whole = not any(cuts[:-1]) and not (cuts[-1] and items[-1].has_step)
    return LaneArrayType(kept, kind.contiguous and whole) if kept else LANES_TYPE


@templates.infer_global(operator.getitem)
class _Get(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        item = _item(*args)
        return item and signature(item, *args)


@templates.infer_global(operator.setitem)
class _Set(templates.AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        *target, value = args
        value = value if isinstance(value, LaneArrayType) else LANES_TYPE
        return _item(*target) and signature(types.none, *target, value)


@extending.lower_builtin(operator.getitem, LaneArrayType, types.Any)
def _get(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = View(context, builder, signature.args[0], args[0])
    first, shape, strides = array.part(context, signature.args[1], args[1])
    if not shape:
        return builder.load(first, align=8)
    data = builder.ptrtoint(first, INTEGER)
    return _new_array(context, builder, signature.return_type, data, shape, strides)


@extending.lower_builtin(operator.setitem, LaneArrayType, types.Any, types.Any)
def _set(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    (kind, index, source), value = signature.args, args[2]
    target = View(context, builder, kind, args[0])
    first, shape, target.strides = target.part(context, index, args[1])
    target.data = builder.ptrtoint(first, INTEGER)
    entries = isinstance(source, LaneArrayType) and View(context, builder, source, value)
    with cgutils.loop_nest(builder, shape, INTEGER) as indices:
        entry = builder.load(entries.pointer(indices), align=8) if entries else value
        builder.store(entry, target.pointer(indices), align=8)
    return context.get_dummy_value()


@extending.overload(len)
def _len(A):  # type: ignore[no-untyped-def]  # numba compares signatures
    return (lambda A: A.shape[0]) if isinstance(A, LaneArrayType) else None


ATTRIBUTES: dict[str, tuple[Any, Any]] = {
    "T": (
        lambda kind: LaneArrayType(kind.ndim, False),
        lambda shape, strides, builder: (shape[::-1], strides[::-1]),
    ),
    "rows": (
        lambda kind: LaneArrayType(2) if kind.contiguous else None,
        lambda shape, strides, builder: ([reduce(builder.mul, shape[:-1]), shape[-1]], []),
    ),
    "flat": (
        lambda kind: LaneArrayType(1) if kind.contiguous else None,
        lambda shape, strides, builder: ([reduce(builder.mul, shape)], []),
    ),
    "matrix": (
        lambda kind: LaneArrayType(2, False),
        lambda shape, strides, builder: ([*shape, integer(1)][:2], [*strides, integer(0)][:2]),
    ),
}
"""Views of an array by name: their type, and their shape and strides by those of the array."""


@templates.infer_getattr
class _Attributes(templates.AttributeTemplate):  # type: ignore[misc]
    key = LaneArrayType

    def generic_resolve(self, kind: Any, name: str) -> Any:
        return ATTRIBUTES[name][0](kind) if name in ATTRIBUTES else None


@extending.lower_getattr_generic(LaneArrayType)
def _attribute(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    array, (kind_of, layout) = View(context, builder, kind, value), ATTRIBUTES[name]
    parts = layout(array.shape, array.strides, builder)
    return _new_array(context, builder, kind_of(kind), array.data, *parts)


@extending.intrinsic
def reshaped(typingctx: Any, A: Any, shape: Any) -> Any:
    """Return the first entries of a contiguous array as an array of this shape, a tuple."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, sizes = View(context, builder, A, args[0]), cgutils.unpack_tuple(builder, args[1])
        return _new_array(context, builder, signature.return_type, array.data, sizes, [])

    return LaneArrayType(len(shape))(A, types.UniTuple(types.intp, len(shape))), codegen
