"""Sentences about calls from PyTorch: why one is left to it, and why a cache is not used."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "torch.missing": "cannot import pipeliner.torch: PyTorch is missing (pip install torch)",
    "torch.left": "{op} is left to PyTorch: {why}",
    "torch.device": "its tensors are on {device}, not on a GPU",
    "torch.devices": "its tensors are on several devices",
    "torch.dtype": "expected tensors of one type of {choices:or}, not {found:list}",
    "torch.empty": "a tensor has no elements",
    "torch.axes": "expected {expected}, not tensors of {found:list} axes",
    "torch.extents": "their extents {found:list} do not fit together",
    "torch.strides": (
        "'{name}' has strides {strides:list}: expected its rows or its columns without gaps"
    ),
    "torch.strides_of_heads": (
        "strides of {name} are {strides:list}: expected heads or tokens without gaps"
    ),
    "torch.gated": "expected two matrices of one shape and order, not {found:list}",
    "torch.gradient": "a gradient is wanted, for which PyTorch keeps what it has computed",
    "torch.channels_first": "'{name}' is not channels_last: its strides are {strides:list}",
    "torch.bias": "expected a bias of {expected} elements of the same type, without gaps",
    "torch.residual": "expected a residual of the output's shape {expected:by} and of its type",
    "torch.unfused": "{op} is not fused, since a gradient is wanted",
    "torch.padding": "padding {pads:list} is not the same on both sides",
    "torch.alignment": "a tensor does not begin at a multiple of {nbytes} bytes",
    "torch.capturing": (
        "a CUDA graph is being captured, and the kernel of this shape is not loaded: call it once "
        "before the capture"
    ),
    "torch.failed": "no kernel can be built: {why}",
    "cache.not_used": "kernels are not kept on disk: {why}",
    "cache.no_folder": "cannot make the folder '{path}': {why}",
    "cache.no_directory": "'{path}' is not a directory",
    "cache.owner": "'{path}' belongs to another user",
    "cache.writable": "others may write '{path}' (mode {mode})",
    "cache.entry": "the entry of '{kernel}' in '{path}' is not used, but made anew: {why}",
    "cache.damaged": "its description cannot be read",
    "cache.key": "its key is another one's",
    "cache.digest": "its library is not the one that was written",
    "cache.bytes": "expected PIPELINER_CACHE_MB to be a number of megabytes, not {value!r}",
}
