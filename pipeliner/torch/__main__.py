"""``python -m pipeliner.torch``: the host times of calls on this machine's GPU, as a table."""

from __future__ import annotations

import os
import sys
import tempfile

from ..errors import PipelinerError, TargetError, ToolError


def main() -> int:
    """Print the tables; 1, in one line, where there is no GPU or no PyTorch."""
    try:
        _print_all()
    except PipelinerError as err:
        print(f"pipeliner: {err}", file=sys.stderr)
        return 1
    return 0


def _print_all() -> None:
    try:
        import torch
    except ImportError as err:
        raise ToolError("torch.missing") from err
    if not torch.cuda.is_available():
        raise TargetError("gpu.torch_blind")
    from .host_times import first_call, host_lines, host_times

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("\n".join(host_lines(host_times())))
    with tempfile.TemporaryDirectory(prefix="pipeliner-") as folder:
        os.environ["PIPELINER_CACHE"] = folder
        for _ in range(2):
            seconds, source = first_call()
            print(f"first call of a process: {seconds:.2f} s ({source})")


if __name__ == "__main__":
    sys.exit(main())
