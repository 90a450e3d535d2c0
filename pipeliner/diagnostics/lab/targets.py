"""Sentences about targets, machines and their files, and tools that must be installed."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "versions.refused": "{why}; {remedy}",
    "versions.missing": "cannot use pipeliner: {package} is not installed",
    "versions.tvm": "cannot use apache-tvm {tvm}: expected {expected}.*",
    "versions.ffi_old": "cannot use apache-tvm-ffi {ffi} with apache-tvm {tvm}: it is too old",
    "versions.ffi_crashes": (
        "cannot use apache-tvm-ffi {ffi} with apache-tvm {tvm}: tensorize crashes (segmentation "
        "fault)"
    ),
    "target.unknown": "expected target to be one of {choices} or sm_NN, not {value}",
    "target.no_gpu": "cannot choose a target: no GPU is visible; name one of {choices} or sm_NN",
    "target.kind": "cannot pipeline for target '{kind}': expected cuda",
    "target.made": "cannot make a target of {value}: {why}",
    "target.no_arch": "expected a CUDA target with an architecture, not '{target}'",
    "target.arch": "expected an architecture such as sm_90, not '{arch}'",
    "machine.unknown": "cannot plan for {arch}: its machine is not described, expected {known}",
    "machine.other": "cannot plan for {arch} by '{path}': it describes {found}",
    "machine.write": "cannot write the machine file '{path}': {why}",
    "machine.read": "cannot read the machine file '{path}': {why}",
    "machine.no_field": "it has no '{name}'",
    "machine.format": "expected the format '{format}'",
    "machine.version": "expected version {expected}, not {found}",
    "machine.text": "expected '{name}' to be a text, not {value}",
    "machine.type": "expected '{name}' to be of type {expected}, not {value}",
    "machine.positive": "expected '{name}' to be positive, not {value}",
    "nvcc.not_there": "cannot run nvcc '{path}': there is no such program",
    "nvcc.name": "cannot use '{path}': expected a program called nvcc",
    "nvcc.missing": "cannot find nvcc; {install}",
    "nvcc.no_disassembler": "cannot disassemble: found no {tools:nor}; {install}",
    "nvcc.arch": "cannot compile for {arch}: nvcc {version} ('{path}') does not know it; {install}",
    "nvcc.compile": "cannot compile '{kernel}': {why}",
    "nvcc.no_runtime": "cannot compile for a GPU: TVM has no {library}",
    "nvcc.runtime": "cannot compile for a GPU: TVM's {library} does not load",
    "nvcc.postproc": "cannot compile edited CUDA: '{function}' is registered already",
    "tool.start": "cannot run '{tool}': {why}",
    "tool.failed": "cannot run {tool}: exit code {code}: {text}",
}
