"""Sentences about options of the command, and about what it cannot do."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "usage.integer": "expected an integer of at least {least}, not {value!r}",
    "usage.numbers": "expected numbers such as {such}, not {value!r}",
    "usage.names": "expected names of {choices}, not {value!r}{near:near}",
    "usage.sizes": "expected {sizes}, not {value!r}",
    "usage.pass": "there is no pass {name!r}{near:near}",
    "usage.renamed": "{option} is called --{now} now",
    "option.least": "expected --{option} to be at least {least}, not {value}",
    "option.positive": "expected --{option} to be above 0, not {value:g}",
    "option.choice": "expected --{option} to be one of {choices}, not {value!r}",
    "option.pass": "expected --passes to name one of {choices}, not {value!r}{near:near}",
    "pass.not_run": "the pass {name!r} does not run on the function; of ours, these do: {ran}",
    "option.depth": "expected --depth to be auto, N or BUFFER=N[,...], not {value!r}",
    "option.pair": "expected two sizes such as 2x4, not {value!r}",
    "option.tolerance": "expected --tolerance to be RTOL or RTOL,ATOL, not {value!r}",
    "option.json_file": "expected --{option} to name a .json file, not '{value}'",
    "option.not_of_workload": "cannot use --{option}: {workload} has no such option",
    "option.not_of_suite": (
        "cannot use --{option}: the suite {suite} has shapes of its own; one workload is "
        "{workloads:or}"
    ),
    "option.seed": "cannot draw {workload} by a seed: expected the suite {suite}",
    "option.annotate": (
        "cannot use --annotate: expected one of {known} in --emit, which names {emitted}"
    ),
    "option.condense": "cannot use --condense without --passes or --diff, which it shortens",
    "option.diff": "expected --diff to be OPTION=A,B, such as depth=2,3, not {value!r}",
    "option.diff_option": "expected --diff to name one of {choices}, not {value!r}{near:near}",
    "option.diff_passes": "cannot use --diff with --passes: it compares what is emitted",
    "option.why_refine": (
        "cannot use --why with --refine: --why compares predicted times, --refine compiled kernels"
    ),
    "option.png": "cannot use --png without --plots, which names the folder",
    "option.searched": "cannot use --{option}: the search chooses it",
    "option.json_output": "cannot use --json with --output, which writes files instead of stdout",
    "option.key": "cannot use --key without --tracker, whose servers it names",
    "option.devices": "cannot use --devices with --tracker: its servers measure",
    "option.blocks_of_workload": (
        "cannot use --blocks with a workload: a small one runs with all its CTAs"
    ),
    "option.machine_target": "cannot use --machine with --target: the file names its GPU",
    "option.tracker_target": "cannot compile for the servers of a tracker: expected --target",
    "option.persistent": (
        "cannot launch '{workload}' on {count:count persistent CTA}: its tile is no matmul's"
    ),
    "option.log_db": "cannot report --db and --log at once",
    "option.log_target": "cannot use --target without --log: records say which GPU it was",
    "option.log": "expected --log: the library has only the logs of {known:or}",
    "option.tile": (
        "cannot use tile {m}x{n}x{k}: a slot of both operands takes {bytes} bytes of shared "
        "memory, a CTA of {machine} has {most}"
    ),
    "option.tile_sizes": "expected --tile of '{workload}' to be {sizes}",
    "completion.missing": (
        "cannot write completions: shtab is missing; pip install 'tvm-pipeliner[cli]'"
    ),
    "command.demo": (
        "cannot walk through {workload}: expected gemm or file.py:name (pipeliner verify "
        "{workload} runs a small one)"
    ),
    "command.workload": "expected {choices} or file.py:name, not {value!r}{near:near}",
    "command.time": (
        "cannot time '{workload}': expected a suite ({suites}) or a workload ({workloads})"
    ),
    "command.time_only": "cannot time --only {value}: expected a part of one of {names}",
    "command.record_only": "expected workloads of {names}, not {value!r}",
    "command.calibrate": "cannot calibrate: none of the measurements succeeded",
    "command.no_heuristics": (
        "cannot judge NVIDIA's heuristics: nvidia-matmul-heuristics is missing; "
        "pip install 'tvm-pipeliner[heuristics]'"
    ),
    "command.no_heuristics_of": "cannot judge NVIDIA's heuristics: they do not know {machine}",
    "command.log_without_time": "cannot compare by '{log}': it has no candidate with a time",
    "user_file.missing": "cannot load '{what}': there is no file '{path}'",
    "user_file.not_python": "cannot load '{path}': expected a Python file",
    "user_file.no_name": "expected {path}:NAME: '{path}' defines {defined}",
    "user_file.not_defined": (
        "cannot load '{what}': '{path}' does not define '{name}', it defines {defined}{near:near}"
    ),
    "user_file.empty": "no function to pipeline",
    "user_file.failed": "cannot load '{what}': {where}{error}: {text}",
}
