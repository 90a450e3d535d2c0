"""``pipeliner calibrate``: measure the cost model's constants on this machine's GPU."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import ToolError, WorkloadError
from ..shared import console
from ..shared.usage import EXIT_INTERRUPTED, check_least

if TYPE_CHECKING:
    from ...calibrate import Calibration
    from ...machine import Machine, MachineFile

HELP: Final = "measure this GPU's latencies and rates into a machine file (needs a GPU and PyTorch)"


DEFAULT_FILE: Final = "machine.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        f"{HELP}. Other commands plan by it with `--machine FILE`; the rest stays as "
        "published. Takes about a minute."
    )
    parser.add_argument(
        "--out", default=DEFAULT_FILE, metavar="FILE", help=f"default: {DEFAULT_FILE}"
    )
    parser.add_argument("--jobs", type=int, help="processes that compile (default: cores - 1)")
    parser.add_argument("--json", action="store_true", help="machine-readable, on stdout")


def run(args: argparse.Namespace) -> int:
    """Measure, write and print; 1 where something could not be measured, 130 when interrupted."""
    out = Path(args.out)
    if out.suffix != ".json":
        raise WorkloadError("option.json_file", option="out", value=args.out)
    check_least(args, jobs=1)
    if not out.resolve().parent.is_dir():
        raise WorkloadError("file.no_folder", path=args.out, folder=str(out.parent))
    with console.progress("loading TVM"):
        from ...calibrate import calibrate
        from ...machine import machine_for, write_machine
        from ...measuring import current_conditions, require_gpu
        from ...targets import accelerated, cuda_target

    torch = require_gpu()
    target = cuda_target()
    base = _as_it_is(torch, machine_for(target))
    found = calibrate(torch, base, accelerated(target), args.jobs, console.say)
    if not found.measured:
        raise ToolError("command.calibrate")
    written = _file(base, found, current_conditions().flat())
    write_machine(out, written)
    _show(written, base, found, args)
    if found.interrupted:
        return EXIT_INTERRUPTED
    return int(bool(found.failed))


def _as_it_is(torch: Any, machine: Machine) -> Machine:
    """``machine`` with the SMs and the L2 cache that this GPU has, should it be a sister of it."""
    seen = torch.cuda.get_device_properties(0)
    return dataclasses.replace(machine, sms=seen.multi_processor_count, l2_bytes=seen.L2_cache_size)


def _file(base: Machine, found: Calibration, conditions: dict[str, str]) -> MachineFile:
    from ...calibrate import with_measured
    from ...machine import MEASURED, MachineFile

    made = with_measured(base, found.measured)
    made = dataclasses.replace(made, name=f"{base.name}{MEASURED}")
    return MachineFile(made, found.measured, conditions)


def _show(
    written: MachineFile, base: Machine, found: Calibration, args: argparse.Namespace
) -> None:
    if args.json:
        measured = {name: dataclasses.asdict(one) for name, one in written.measured.items()}
        console.print_json(
            file=args.out,
            machine=dataclasses.asdict(written.machine),
            measured=measured,
            failed=found.failed,
            interrupted=found.interrupted,
        )
        return
    rows = [
        (name, one.how, f"{one.value:,.5g}", one.unit, _published(base, name))
        for name, one in written.measured.items()
    ]
    console.print_table(("what", "by", "measured", "unit", "published"), rows)
    print(f"\n{args.out}: {written.machine.name}; plan by it with --machine {args.out}")


def _published(base: Machine, name: str) -> str:
    """What the described machine has for a field of that name."""
    value = getattr(base, name, None)
    return "" if value is None else f"{value:,.5g}"
