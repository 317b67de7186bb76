"""A pretended GPU: tensors that say `cuda`, computed on the CPU.

What a GPU refuses is refused: operands on different devices, NumPy's view of a device tensor. So a
step that silently needs the CPU is found on a machine without a GPU.
"""

from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from attnsvm import linalg

GPU = torch.device("meta")
# What torch allows between devices: copies, and a CPU index into a device tensor.
CROSSING = {
    "aten::copy_",
    "aten::_to_copy",
    "aten::index",
    "aten::index_put_",
    "aten::_index_put_impl_",
}


class Pretended(torch.Tensor):
    """A tensor that says it is on the GPU; `inner` is on the CPU."""

    inner: torch.Tensor
    is_meta = False  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Self:
        tensor: Pretended = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=GPU
        )
        tensor.inner = inner
        return tensor

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """Inside, device="cuda" can be asked for."""

    def __enter__(self) -> Self:
        linalg.PLAIN.append(Pretended)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        linalg.PLAIN.remove(Pretended)
        super().__exit__(*error)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(function, args, kwargs or {})


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    arguments = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    here = [x for x in arguments if isinstance(x, Pretended)]
    name = function._schema.name
    if here and name not in CROSSING:
        for x in arguments:
            if not isinstance(x, Pretended) and x.ndim:
                raise RuntimeError(f"{name}: operands on cuda and on cpu")
    target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
    on_gpu = target.type == GPU.type if target else bool(here)
    if target:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = tree_map(_inner, (args, kwargs))
    out = function(*args, **kwargs)
    if name.endswith("_") and isinstance(arguments[0], Pretended):
        return arguments[0]
    return tree_map(_pretend, out) if on_gpu else out


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, Pretended) else x


def _pretend(x: Any) -> Any:
    return Pretended(x) if isinstance(x, torch.Tensor) and not isinstance(x, Pretended) else x
