"""nvcc, ptxas and the disassemblers: found, run, and their reports read.

TVM itself compiles only where a GPU driver is present (see ``without_driver``). PTX, SASS and
ptxas's resource report need none, so they come from here, with the flags that TVM would give.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from .. import knobs
from ..errors import ToolError

TOOLKIT: Final = Path("/usr/local/cuda")
GET_NVCC: Final = "pip install 'tvm-pipeliner[nvcc]', or install the CUDA toolkit"

GET_EARLIER_NVCC: Final = (
    "CUDA 12.9 is the last that compiles GPUs before sm_75: 'conda install -c conda-forge "
    "cuda-nvcc=12.9', or its toolkit from developer.nvidia.com/cuda-toolkit-archive, and name its "
    "nvcc in PIPELINER_NVCC; wheels on PyPI have ptxas of CUDA 12, not nvcc"
)
"""How to get an nvcc that still compiles the first GPUs described here."""

SERIALISED_COST: Final = "4096 cubed with weights of int8 took 1.24 times as long on an H100"
"""What a user is told of wgmma that ptxas serialises."""

_SERIALISED: Final = r"wgmma\.mma_async \w+ are serialized due to (.+?) in (?:the )?function"
"""Of ptxas 12 and 13, with codes such as C7510, C7511, C7514 and C7515; the name follows."""

_INJECTED: Final = r"warpgroup\.(?:arrive|wait) is injected .+ in (?:the )?function"
"""As that, with codes C7517 and C7519."""

LINE_INFO: Final = "-lineinfo"
"""nvcc's option that keeps the lines of the source in the machine code, which stays as it is."""

_UNKNOWN_ARCH: Final = re.compile(r"Unsupported gpu architecture '(?:compute|sm)_(\w+)'")
"""Of nvcc 12 and 13, for an architecture that is too old or too new for them."""

_MAX_LINES: Final = 12
_UNDEFINE: Final = tuple(
    f"-U__CUDA_NO_{name}__"
    for name in (
        "HALF_OPERATORS",
        "HALF_CONVERSIONS",
        "BFLOAT16_OPERATORS",
        "BFLOAT16_CONVERSIONS",
        "BFLOAT162_OPERATORS",
        "BFLOAT162_CONVERSIONS",
    )
)


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes, as ptxas reports it; ``dynamic_shared`` is what its launch asks for.

    Registers and stack are per thread, shared memory per CTA, all sizes in bytes. ``serialised``:
    why ptxas has each wgmma wait for the one before, empty where it does not; ``injected``: fences
    and waits that it put between them, which the code should have had.
    """

    kernel: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int
    static_shared: int
    dynamic_shared: int = 0
    serialised: str = ""
    injected: int = 0

    @property
    def shared(self) -> int:
        """Shared memory of a CTA, static and dynamic."""
        return self.static_shared + self.dynamic_shared

    @property
    def spills(self) -> int:
        """Bytes that a thread stores to or loads from memory for want of registers."""
        return self.spill_stores + self.spill_loads

    @property
    def wgmma_warning(self) -> str:
        """What ptxas did to the kernel's wgmma, and what that costs, in a line; empty: nothing."""
        if self.serialised:
            return f"each waits for the one before ({self.serialised}): {SERIALISED_COST}"
        if self.injected:
            return f"ptxas put {self.injected} fences and waits between them that the code lacks"
        return ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The output of one nvcc run: the file's bytes and what ptxas said."""

    data: bytes
    log: str


def tvm_compiles() -> bool:
    """Whether TVM compiles CUDA in this process: its CUDA runtime has loaded, and so a driver."""
    import tvm  # which loads the runtimes that it can

    return tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None


@contextmanager
def for_tvm(*, line_info: bool = False) -> Iterator[None]:
    """TVM with our nvcc where it compiles; without a driver it stops at CUDA.

    ToolError: this nvcc does not know the architecture, which TVM tells in nvcc's words.
    """
    if not tvm_compiles():
        yield
        return
    nvcc = find_nvcc()
    with knobs.tvm_uses_nvcc(nvcc.parent, (LINE_INFO,) if line_info else ()):
        try:
            yield
        except RuntimeError as err:
            unknown = _UNKNOWN_ARCH.search(str(err))
            if unknown is None:
                raise
            raise _of_unknown_arch(nvcc, f"sm_{unknown[1]}") from err


def find_nvcc(explicit: str | None = None) -> Path:
    """The nvcc to use; ToolError says where it was looked for and how to get one.

    Order: ``explicit``, PIPELINER_NVCC, CUDA_PATH, CUDA_HOME, PATH, NVIDIA's wheels and then
    /usr/local/cuda.
    """
    named = explicit or knobs.nvcc()
    if named is not None:
        path = shutil.which(named)
        if path is None:
            raise ToolError("nvcc.not_there", path=named)
        if Path(path).name != "nvcc":  # TVM runs the program of that name
            raise ToolError("nvcc.name", path=named)
        return Path(path)
    found = _first("nvcc", _folders())
    if found is None:
        raise ToolError("nvcc.missing", install=GET_NVCC)
    return found


def is_found() -> bool:
    """Whether there is an nvcc."""
    try:
        find_nvcc()
    except ToolError:
        return False
    return True


def find_tool(name: str) -> Path | None:
    """A tool of the toolkit (``ptxas``, ``nvdisasm``, ``cuobjdump``), or None.

    Looked for beside nvcc and then where nvcc is looked for: toolkits are often installed in part.
    """
    try:
        beside = [find_nvcc().resolve().parent]
    except ToolError:
        beside = []
    return _first(name, [*beside, *_folders()])


def version(nvcc: Path) -> str:
    """The release of an nvcc, such as ``13.0``."""
    found = re.search(r"release (\S+),", _run([str(nvcc), "--version"]))
    return found[1] if found else "unknown"


def architectures(nvcc: Path) -> tuple[int, ...]:
    """The compute capabilities that an nvcc compiles for, such as 90; none where it lists none."""
    return tuple(map(int, re.findall(r"compute_(\d+)", _run([str(nvcc), "--list-gpu-arch"]))))


def command(nvcc: Path, arch: str, kind: str, source: Path, output: Path) -> list[str]:
    """The nvcc command line that TVM 0.27 uses (tvm.support.nvcc) for ``arch``, such as sm_90."""
    number = arch.removeprefix("sm_")
    return [
        str(nvcc),
        f"--{kind}",
        "-O3",
        "-gencode",
        f"arch=compute_{number},code=sm_{number}",
        *_UNDEFINE,
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda",
        *(["--use_fast_math"] if knobs.fast_math() else []),
        f"--ptxas-options={','.join(knobs.ptxas_options())}",
        "-o",
        str(output),
        str(source),
    ]


def compile_cuda(
    source: str, arch: str, kind: Literal["ptx", "cubin", "fatbin"], *, line_info: bool = False
) -> Compiled:
    """CUDA C++ compiled for ``arch``; ToolError carries nvcc's errors.

    Of an architecture that this nvcc does not know, it says how to get one that does.
    """
    nvcc = find_nvcc()
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        path, output = Path(folder) / "kernel.cu", Path(folder) / f"kernel.{kind}"
        path.write_text(source)
        options = [LINE_INFO] if line_info else []
        try:
            log = _run([*command(nvcc, arch, kind, path, output), *options])
        except ToolError as err:
            if not _UNKNOWN_ARCH.search(str(err)):
                raise
            raise _of_unknown_arch(nvcc, arch) from err
        return Compiled(output.read_bytes(), log)


def _of_unknown_arch(nvcc: Path, arch: str) -> ToolError:
    """That ``nvcc`` does not compile for ``arch``, and which does."""
    known, wanted = architectures(nvcc), int(arch.removeprefix("sm_").rstrip("af"))
    install = GET_EARLIER_NVCC if known and wanted < min(known) else GET_NVCC
    return ToolError("nvcc.arch", version=version(nvcc), path=str(nvcc), arch=arch, install=install)


def shared_library(source: str, path: Path) -> None:
    """The C ``source`` as a shared library at ``path``, by nvcc's host compiler."""
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        file = Path(folder) / "library.c"
        file.write_text(source)
        options = ["-shared", "-cudart", "none", "-Xcompiler", "-fPIC"]
        named = ["-Xlinker", f"-soname={path.name}"]
        _run([str(find_nvcc()), *options, *named, str(file), "-o", str(path)])


def disassemble(
    code: bytes, kind: Literal["cubin", "fatbin"] = "cubin", *, line_info: bool = False
) -> str:
    """The SASS of a cubin, by nvdisasm or cuobjdump, or of a fatbin, by the latter.

    ``line_info``: with the lines of the source, which nvdisasm alone prints. ToolError names how to
    get them.
    """
    tools = ("nvdisasm", "cuobjdump") if kind == "cubin" else ("cuobjdump",)
    if line_info:
        tools = ("nvdisasm",)
    tool = next((path for path in map(find_tool, tools) if path is not None), None)
    if tool is None:
        raise ToolError("nvcc.no_disassembler", tools=tools, install=GET_NVCC)
    options = ["-c"] if tool.name == "nvdisasm" else ["-sass"]
    options += ["-gi"] if line_info else []
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        path = Path(folder) / f"kernel.{kind}"
        path.write_bytes(code)
        return _run([str(tool), *options, str(path)])


def resources(log: str, dynamic_shared: Callable[[str], int] = lambda kernel: 0) -> list[Resources]:
    """What ``ptxas -v`` reported, one value a kernel, in the order of the report."""
    found = []
    for part in re.split(r"Compiling entry function '", log)[1:]:
        kernel = part[: part.index("'")]
        named = rf" '{re.escape(kernel)}'"
        found.append(
            Resources(
                kernel=kernel,
                registers=_number(r"Used (\d+) registers", part),
                stack=_number(r"(\d+) bytes stack frame", part),
                spill_stores=_number(r"(\d+) bytes spill stores", part),
                spill_loads=_number(r"(\d+) bytes spill loads", part),
                barriers=_number(r"used (\d+) barriers", part),
                static_shared=_number(r"(\d+) bytes smem", part),
                dynamic_shared=dynamic_shared(kernel),
                # What it says of wgmma comes before it begins to say what each kernel takes.
                serialised="; ".join(dict.fromkeys(re.findall(_SERIALISED + named, log))),
                injected=len(re.findall(_INJECTED + named, log)),
            )
        )
    return found


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def _folders() -> list[Path]:
    on_path = shutil.which("nvcc")
    return [
        *(root / "bin" for root in knobs.cuda_roots()),
        *([Path(on_path).parent] if on_path else []),
        *wheel_folders(),
        TOOLKIT / "bin",
    ]


def wheel_folders() -> list[Path]:
    """Where NVIDIA's PyPI packages put their programs: ``nvidia/cu13/bin`` and its kin."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None else None
    return [folder for root in roots or () for folder in sorted(Path(root).glob("cu*/bin"))]


def _first(name: str, folders: Iterable[Path]) -> Path | None:
    for folder in folders:
        path = shutil.which(name, path=str(folder))
        if path is not None:
            return Path(path)
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _run(argv: list[str]) -> str:
    """Run a tool; its output and errors as one text."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as err:
        raise ToolError("tool.start", tool=argv[0], why=err.strerror) from err
    if done.returncode != 0:
        name = Path(argv[0]).name
        raise ToolError("tool.failed", tool=name, code=done.returncode, text=_told(done.stdout))
    return done.stdout


def _told(output: str) -> str:
    """What a failed tool said: its first errors where it names any, else how it ended."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    return "; ".join(errors[:_MAX_LINES] or lines[-_MAX_LINES:])
