"""A compiled function: read it, run it, emulate it, export it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tvm
from tvm import tirx

from ..diagnostics import Reason
from ..emulator import Emulation, emulate, lower_for_emulation
from ..emulator.base.report import CudaLine
from ..emulator.emulate import EmulateOptions, Programs
from ..emulator.lower import Lowering
from ..errors import InternalError, LoweringError, PlanError, TargetError, ToolError, WorkloadError
from ..passes.dependence.overlap import OVERLAP
from ..passes.ir.kernels import has_kernel, why_no_kernel
from ..passes.ir.nodes import buffer_bytes, collect
from ..passes.lower import PIPELINE
from ..plan import PLAN_ATTR, KernelPlan
from ..proof.kept import proof_of
from ..proof.proof import Proof
from ..proving.driver import Proving
from ..targets import gpu, gpu_arch
from ..toolchain import line_info, nvcc
from ..toolchain.machine_code import LoopCode, longest_loop
from . import without_driver
from .annotated import AnnotatedCuda, annotated
from .cuda_lines import CudaLines, cuda_lines
from .postproc import in_place_of_cuda
from .shown import kernel_fragment

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Kernel:
    """A compiled function; everything below is made on first use and kept.

    Call it with its arguments in the order of the PrimFunc, outputs included: torch tensors, or
    anything with DLPack, on the GPU (nothing is copied, the current torch stream is used, a CUDA
    graph can capture the call after a first one), or numpy arrays (copied there and back).
    """

    def __init__(
        self,
        mod: Any,
        target: Any,
        pipeline: str = PIPELINE,
        config: Mapping[str, Any] | None = None,
        original: Any = None,
    ) -> None:
        self.module = mod
        self.target = target
        self.pipeline = pipeline
        self.config = dict(config or {})
        self.function = only_function(mod)
        self.name = str(self.function.attrs["global_symbol"])
        self.original = self.function if original is None else original
        """The function before it was pipelined, where that is known."""
        self._programs: Programs = {}
        self._source: str | None = None
        self._line_file = ""
        self._lowering: Lowering | None = None
        self.proving = Proving()
        """Whether it is proved beside nvcc, and what came of that."""

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {self.arch})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the plan beside the CUDA; it is lowered for that, not compiled."""
        plan = self.plan if (self.function.attrs or {}).get(PLAN_ATTR) else None
        if self._source is not None:  # what a person wrote: no statement is known of its lines
            return kernel_fragment(self.name, self.arch, plan, self._source, {})
        lines = self.__dict__.get("cuda_lines") or cuda_lines(self.lowered)
        return kernel_fragment(self.name, self.arch, plan, lines.source, lines.origins())

    def with_line_info(self, path: str | Path) -> Kernel:
        """The same kernel, compiled from ``annotated_cuda``, which is written to ``path``.

        Of an edited kernel that is its own text. ncu and compute-sanitizer then show the lines of
        that file, with their ops and stages. The machine code is the same. WorkloadError: the file
        cannot be written.
        """
        file = Path(path).resolve()
        text = self.annotated_cuda if self._source is None else self._source
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as err:
            raise WorkloadError("file.write", path=str(path), why=err.strerror) from err
        made = copy.copy(self)
        for name in _FROM_CUDA:
            made.__dict__.pop(name, None)
        made._source, made._line_file = text, str(file)
        return made

    def with_plan(self, plan: KernelPlan) -> Kernel:
        """The same kernel whose plan says more; what was made of it is kept."""
        made = copy.copy(self)
        made.function = self.function.with_attr(PLAN_ATTR, plan.to_json())
        made.module = as_module(made.function)
        made.__dict__["plan"] = plan
        return made

    @property
    def arch(self) -> str:
        """The architecture that it is compiled for, such as ``sm_90``."""
        return str(self.target.attrs["arch"])

    @cached_property
    def plan(self) -> KernelPlan:
        """The plan that the function carries; PlanError where it was not made by pipeliner."""
        return plan_of(self.function)

    @cached_property
    def executable(self) -> Any:
        """TVM's executable (``tvm.runtime.Executable``)."""
        seen = Lowering()
        context = tvm.transform.PassContext(config=self.config, instruments=[seen])
        named = (
            f"#line 1 {json.dumps(self._line_file, ensure_ascii=False)}\n"
            if self._line_file
            else ""
        )
        source = None if self._source is None else f"{named}{self._source}"
        given = nullcontext() if source is None else in_place_of_cuda(source)
        proving = self.proving.by_tvm(lambda: seen.module)
        with given, nvcc.for_tvm(line_info=self._line_info), self.target, context, proving:
            built = tvm.compile(self.module, self.target, tir_pipeline=self.pipeline)
        self._lowering = seen
        return built

    @cached_property
    def lowered(self) -> Any:
        """Host and device functions as an IRModule, just before CUDA is printed from them."""
        if self._lowering is not None:  # what has been compiled need not be lowered again
            return self._lowering.module
        return lower_for_emulation(self.module, self.target, self.pipeline, self.config)

    @cached_property
    def cuda(self) -> str:
        """The CUDA C++ of the device functions; WorkloadError: there are none."""
        for module in self.executable.mod.imports:
            if module.kind == "cuda":
                return str(module.inspect_source())
        raise WorkloadError("kernel.no_cuda", kernel=self.name)

    @cached_property
    def cuda_lines(self) -> CudaLines:
        """The statements that each line of ``cuda`` was printed from, and where they come from."""
        lines = cuda_lines(self.lowered)
        if lines.source != self.cuda:
            raise InternalError(
                f"cannot find the lines of '{self.name}': its CUDA is not what its lowered form "
                "prints; this is a bug in pipeliner"
            )
        return lines

    @cached_property
    def annotated(self) -> AnnotatedCuda:
        """``cuda`` with the origin of each line before it, and those origins by line."""
        return annotated(self.cuda_lines)

    @property
    def annotated_cuda(self) -> str:
        """``cuda`` with the origin of each line before it: op, stage, phase, iteration, slots.

        Prologue, steady state and epilogue are regions that editors fold.
        """
        return self.annotated.source

    @cached_property
    def annotated_ptx(self) -> str:
        """``ptx`` with the lines of ``annotated_cuda`` that it is from, and their origins."""
        made = nvcc.compile_cuda(self.annotated_cuda, self.arch, "ptx", line_info=True)
        return line_info.noted_ptx(made.data.decode(), self.annotated.note)

    @cached_property
    def annotated_sass(self) -> str:
        """``sass`` with the lines of ``annotated_cuda`` that it is from, and their origins."""
        made = nvcc.compile_cuda(self.annotated_cuda, self.arch, "cubin", line_info=True)
        text = nvcc.disassemble(made.data, line_info=True)
        return line_info.noted_sass(text, self.annotated.note)

    @cached_property
    def ptx(self) -> str:
        """The PTX that nvcc makes of it."""
        made = nvcc.compile_cuda(self.cuda, self.arch, "ptx", line_info=self._line_info)
        return made.data.decode()

    @cached_property
    def sass(self) -> str:
        """The machine code, disassembled."""
        return nvcc.disassemble(self._cubin.data)

    @cached_property
    def loop_code(self) -> LoopCode | None:
        """Its longest loop in machine code, as counts; None: it has no loop there."""
        return longest_loop(self.sass)

    @property
    def resources(self) -> nvcc.Resources:
        """Registers, spills, stack and shared memory of the device function that takes most."""
        return max(self.all_resources, key=lambda used: (used.registers, used.shared))

    @cached_property
    def all_resources(self) -> tuple[nvcc.Resources, ...]:
        """What each device function takes, as ptxas reports it."""
        return self.resources_in(self._cubin.log)

    def resources_in(self, log: str) -> tuple[nvcc.Resources, ...]:
        """What each device function takes, by what ptxas said when it compiled them."""
        return tuple(nvcc.resources(log, self._dynamic_shared.__getitem__))

    def emulate(self, *arrays: Any, **options: Unpack[EmulateOptions]) -> Emulation:
        """Run it on the CPU, on numpy arrays, outputs included, which stay as they are.

        The result has the outputs by name and every hazard met; ``options``: ``pipeliner.emulate``.
        """

        def line(kernel: str, number: int) -> CudaLine | None:
            return self.cuda_lines.find(kernel, number)  # CUDA is printed for a hazard alone

        return emulate(self.lowered, arrays, lines=line, programs=self._programs, **options)

    @cached_property
    def proof(self) -> Proof:
        """For which trip counts it is right, in every interleaving (``pipeliner/proof``)."""
        return proof_of(self.lowered)

    def export(self, path: str | Path, *, compiled: bool = True) -> str:
        """Write a shared library that TVM's runtime loads without pipeliner; what it holds.

        That is machine code where there is an nvcc, whether or not there is a driver or a GPU.
        Otherwise, or with ``compiled`` false where there is no driver, it is CUDA source, and
        ``tvm.runtime.load_module`` needs nvcc. ToolError: nvcc or the linker fails.
        """
        by_tvm = nvcc.tvm_compiles()
        by_us = not by_tvm and compiled and nvcc.is_found()
        try:
            if by_us:
                given = self.module, self.target, self.pipeline, self.config, self.cuda, Path(path)
                with self.proving.by_us(lambda: self.lowered):
                    without_driver.export(*given, line_info=self._line_info)
            else:
                with nvcc.for_tvm(line_info=self._line_info) if by_tvm else nullcontext():
                    self.executable.export_library(str(path))
        except LoweringError:  # it is refuted
            raise
        except (RuntimeError, OSError) as err:
            linker = without_driver.linker_says(str(err))
            why = err.reason if isinstance(err, ToolError) else linker
            raise ToolError("kernel.export", kernel=self.name, path=str(path), why=why) from err
        if by_tvm or by_us:
            return f"machine code for {self.arch}, which a GPU of it runs without nvcc"
        return f"CUDA source, which nvcc compiles for {self.arch} where it is loaded"

    def __call__(self, *arrays: Any) -> None:
        """Run it on the GPU; TargetError where there is none."""
        for array in arrays:
            if isinstance(array, np.ndarray):
                _run_on_copies(self._callable, arrays, self._overlaps)
                return
        # TVM itself takes torch's current stream where it is given a torch tensor.
        self._callable(*arrays)

    @cached_property
    def _callable(self) -> Any:
        _check_gpu(self.name, self.arch)
        with nvcc.for_tvm(line_info=self._line_info), self.target:
            return self.executable[self.name]

    @property
    def _overlaps(self) -> list[Any]:
        """The pairs of parameters whose arrays the host code checks for overlap."""
        return list((self.function.attrs or {}).get(OVERLAP, []))

    @property
    def _line_info(self) -> bool:
        return bool(self._line_file)

    @cached_property
    def _cubin(self) -> nvcc.Compiled:
        cuda = self.cuda
        with self.proving.by_us(lambda: self.lowered):
            return nvcc.compile_cuda(cuda, self.arch, "cubin", line_info=self._line_info)

    @cached_property
    def _dynamic_shared(self) -> dict[str, int]:
        """Bytes of dynamic shared memory by device function."""
        found: dict[str, int] = {}
        for var, func in self.lowered.functions.items():
            allocations = collect(func.body, tirx.AllocBuffer)
            found[str(var.name_hint)] = sum(_arena(node.buffer) for node in allocations)
        return found


_FROM_CUDA: Final = ("executable", "cuda", "ptx", "sass", "loop_code", "_cubin", "_callable")
"""What a kernel keeps that is of its CUDA as it was compiled."""


def compile_kernel(
    func: Any, target: Any, pipeline: str = PIPELINE, config: Mapping[str, Any] | None = None
) -> Kernel:
    """``func`` as it is (PrimFunc, Schedule or module), through one of TVM's named pipelines."""
    return Kernel(as_module(func), target, pipeline, config)


def plan_of(func: Any) -> KernelPlan:
    """The plan that ``func`` (a PrimFunc, or a module with one) carries; PlanError: none."""
    prim = func if isinstance(func, tirx.PrimFunc) else only_function(as_module(func))
    text = prim.attrs.get(PLAN_ATTR) if prim.attrs else None
    if text is None:
        name = str(prim.attrs.get("global_symbol", "?") if prim.attrs else "?")
        if not has_kernel(prim):
            raise PlanError("plan.left_alone", why=why_no_kernel(name))
        raise PlanError("plan.none", function=name)
    return KernelPlan.from_json(str(text))


def as_module(func: Any) -> Any:
    """A PrimFunc, a Schedule or an IRModule as an IRModule; WorkloadError for anything else."""
    if isinstance(func, tirx.PrimFunc):
        if not (func.attrs and "global_symbol" in func.attrs):
            func = func.with_attr("global_symbol", "main")
        return tvm.IRModule({str(func.attrs["global_symbol"]): func})
    mod = getattr(func, "mod", func)
    if not isinstance(mod, tvm.IRModule):
        raise WorkloadError("function.type", type=type(func).__name__)
    return mod


def only_function(mod: Any) -> Any:
    """The PrimFunc of a module, with its name on it; WorkloadError: there is not exactly one."""
    public = [
        (str(var.name_hint), func)
        for var, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc)
    ]
    if len(public) != 1:
        names = tuple(sorted(name for name, _ in public)) or Reason("plan.nothing")
        raise WorkloadError("function.one", count=len(public), names=names)
    name, func = public[0]
    return func if "global_symbol" in func.attrs else func.with_attr("global_symbol", name)


def _arena(buffer: Any) -> int:
    """Bytes of a dynamic shared allocation, 0 for any other."""
    return (buffer_bytes(buffer) or 0) if str(buffer.scope()) == "shared.dyn" else 0


def _check_gpu(name: str, arch: str) -> None:
    present = gpu_arch()
    if present is None:
        raise TargetError("kernel.no_gpu", kernel=name)
    if arch.rstrip("af") != present:
        raise TargetError("kernel.other_gpu", kernel=name, arch=arch, present=present)


def _run_on_copies(run: Any, arrays: tuple[Any, ...], disjoint: Iterable[Any]) -> None:
    """Run on GPU copies of numpy arrays; afterwards the arrays hold what the copies hold.

    An array that is given twice has one copy. ``disjoint``: pairs that must not overlap in part.
    """
    if not all(isinstance(array, np.ndarray) or np.isscalar(array) for array in arrays):
        raise WorkloadError("kernel.mixed_arrays")
    for written, other, *_ in disjoint:
        one, two = arrays[written], arrays[other]
        if np.may_share_memory(one, two) and _place(one) != _place(two):
            raise WorkloadError("kernel.overlap", argument=other, written=written)
    device = gpu()
    made: dict[Any, Any] = {}
    for array in arrays:
        if isinstance(array, np.ndarray) and _place(array) not in made:
            made[_place(array)] = tvm.runtime.tensor(array, device)
    copies = [made[_place(a)] if isinstance(a, np.ndarray) else a for a in arrays]
    run(*copies)
    for array, on_gpu in zip(arrays, copies):
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = on_gpu.numpy()


def _place(array: Any) -> Any:
    """Which array it is: where it lies and how."""
    return array.ctypes.data, array.shape, array.strides, array.dtype.str
