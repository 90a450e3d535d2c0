"""Sentences of the emulator about TIR that it cannot run, and arguments that do not fit."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    # The call
    "emulator.argument_names": (
        "expected arguments {expected:list}: missing ({missing:list}), unknown ({unknown:list})"
    ),
    "emulator.argument_count": "expected {expected:count argument}, got {count}",
    "emulator.argument_scalar": (
        "expected a scalar for parameter '{name}', got an array of shape ({shape:list})"
    ),
    "emulator.argument_dtype": "expected {expected} for parameter '{name}', got {dtype}",
    "emulator.argument_rank": "expected rank {expected} for parameter '{name}', got {rank}",
    "emulator.argument_extent": (
        "expected extent {expected} in axis {axis} of parameter '{name}', got {extent}"
    ),
    "emulator.argument_whole_strides": (
        "expected strides of whole elements for parameter '{name}', got ({strides:list}) bytes"
    ),
    "emulator.argument_strides": (
        "expected strides ({expected:list}) for parameter '{name}', got ({strides:list})"
    ),
    "emulator.argument_shared_strides": (
        "expected strides ({expected:list}) for parameter '{name}', which shares memory with "
        "another, got ({strides:list})"
    ),
    "emulator.not_lowered": "expected a lowered IRModule: use lower_for_emulation(func, target)",
    "emulator.not_module": "expected an IRModule, got {kind}",
    "emulator.pipeline": "cannot lower for emulation: the pipeline has no {missing} pass",
    # The host
    "emulator.host_check": "{says}",
    "emulator.host_statement": "cannot emulate host statement {kind}: {statement}",
    "emulator.host_expression": "cannot evaluate host expression {kind}: {expression}",
    "emulator.host_variable": "cannot evaluate host variable '{name}': it has no value",
    "emulator.host_call": "cannot emulate host call '{name}'",
    "emulator.host_address": "cannot evaluate the address of {value}: it is no array",
    "emulator.no_kernel": "cannot emulate: the host function launches no kernel",
    "emulator.unknown_kernel": "cannot launch '{kernel}': the module has no such device function",
    "emulator.kernel_numbers": (
        "expected CTAs of kernels below {count}, the number of them, not of {given:list}"
    ),
    "emulator.launch_tags": "cannot launch '{kernel}': unknown launch dimensions {tags:list}",
    "emulator.clusters_of_grid": (
        "cannot launch '{kernel}': a grid of ({grid:list}) is no multiple of clusters of "
        "({cluster:list})"
    ),
    "emulator.cluster_threads": (
        "cannot emulate a cluster of CTAs of {threads} threads: these are not whole warps"
    ),
    "emulator.clusters": "cannot emulate more than {most} clusters in one call",
    # The device function
    "emulator.statement": "cannot emulate statement {kind}: {statement}",
    "emulator.expression": "cannot emulate expression {kind}: {expression}",
    "emulator.evaluate": "cannot emulate a statement that is an expression: {expression}",
    "emulator.operation": "cannot emulate operation '{name}': {call}",
    "emulator.external": "cannot emulate external function '{name}': {call}",
    "emulator.no_value": "cannot emulate '{name}' as a value: it returns none",
    "emulator.math": "cannot emulate '{function}' of {count:count argument}",
    "emulator.assertion": "cannot emulate a device assertion: {condition}",
    "emulator.loop": "cannot emulate loop '{name}': it is {kind} in a kernel",
    "emulator.thread_axis": "cannot emulate thread axis '{axis}'",
    "emulator.no_count": "cannot emulate '{attribute}': it holds no count of groups in flight",
    "emulator.sync": "cannot emulate a storage sync of scope '{scope}'",
    "emulator.named_barrier": (
        "cannot emulate a named barrier whose {varies} varies between threads"
    ),
    "emulator.dtype": "cannot emulate dtype '{dtype}': it has no numpy counterpart",
    "emulator.variable": "cannot emulate variable '{name}': it has no scalar value",
    "emulator.ramp": "cannot emulate a ramp whose stride varies: {expression}",
    # Memory
    "emulator.address": "cannot emulate address '{kind}': {expression}",
    "emulator.pointer": "cannot emulate pointer '{name}': it denotes no known memory",
    "emulator.undeclared": "cannot emulate buffer '{buffer}': it is not declared",
    "emulator.scope": "cannot emulate buffer '{buffer}' of scope '{scope}'",
    "emulator.extent": "cannot emulate an allocation of extent {extent}: it is no constant",
    "emulator.indices": "cannot emulate buffer '{buffer}': expected one flat index, got {count}",
    "emulator.register": "cannot emulate {buffer}[{index}]: '{buffer}' has {size:count element}",
    # Fragments of TVM's matrix intrinsics
    "emulator.fragment_space": "cannot emulate a fragment in {space} memory",
    "emulator.mma_store": "cannot emulate mma_store of {m}x{n}: expected 16x16",
    "emulator.wmma_load": (
        "cannot emulate a load from wmma fragment '{buffer}': its layout is opaque"
    ),
    "emulator.wmma_threads": (
        "cannot emulate wmma in a CTA of {threads:count thread}: these are not whole warps"
    ),
    "emulator.wmma_index": (
        "cannot emulate a wmma fragment whose index varies between threads: {indices:list}"
    ),
    "emulator.wmma_shape": (
        "cannot emulate tvm_mma_sync: no fragment before it says the instruction's shape"
    ),
}
