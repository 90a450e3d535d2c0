"""A search to be interrupted: PATH of the records. Says how far it is, and how it ended."""

from __future__ import annotations

import signal
import sys

from pipeliner.schedules import Gemm
from pipeliner.tuning import tune
from tests.tuning.fakes import Compiler, Fake, MadeUpGpu

SPEC = Gemm(128, 128, 128)
TRIALS = 8

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    found = tune(
        SPEC,
        "h100",
        trials=TRIALS,
        db=sys.argv[1],
        measurers=[Fake(MadeUpGpu(SPEC), seconds=0.5)],
        compiler=Compiler(),
        say=lambda progress: print(progress.done, flush=True),
    )
    print("interrupted" if found.interrupted else "done", found.done, flush=True)
