"""Sentences about experiments, tuning and logs: what is asked for, and what cannot be measured."""

from __future__ import annotations

from typing import Final

SENTENCES: Final = {
    "experiment.read": "cannot read experiment '{path}': {why}",
    "experiment.missing": "{why}; shipped are {shipped}",
    "experiment.tomllib": "cannot read an experiment: tomllib comes with Python 3.11",
    "experiment.machine": "cannot run '{title}' on {machine}: it is for {machines}",
    "experiment.no_variant": "expected a variant for one of its workloads",
    "experiment.no_table": "expected at least one [[{name}]]",
    "experiment.only": "expected only to be part of one of {names}, not {value!r}",
    "experiment.square": "expected square in place of m, n and k of a gemm, plain or gated",
    "experiment.no_parameters": (
        "cannot give '{kind}' {names}: it is no function that makes a schedule, but one"
    ),
    "experiment.function": "cannot make a schedule by '{kind}': {why}",
    "experiment.of_function": (
        "cannot run '{name}' with '{label}', a function of one's own: it has no other tile, type "
        'or peer; expected for = "gemm" or "conv"'
    ),
    "experiment.unnamed": "expected each [[variant]] to have a name",
    "experiment.peer_options": "cannot give '{name}' a tile or options: {peer} has its own",
    "experiment.fields": "expected {what} to have {names}",
    "experiment.unknown_field": "expected {what} to have only {known}, not '{name}'",
    "experiment.braces": (
        "expected the names in braces, in the name {name!r}, to be options of its variant"
    ),
    "experiment.machines": "expected machines to be a list of names such as h100, not {value}",
    "experiment.text": "expected {name} to be a text, not {value}",
    "experiment.choice": "expected {what} to be one of {choices}, not {value}",
    "experiment.kind": "expected kind to be one of {choices}, or a suite, not {value}",
    "experiment.table": "expected {name} to be a table, {{ ... }}, not {value}",
    "experiment.empty": "expected at least one value of {name}",
    "experiment.twice": "expected {what} names to differ, '{name}' is there twice",
    "tune.trials": "expected trials to be at least 1, not {value}",
    "tune.space_of_workload": (
        "cannot search a space of one's own of '{workload}': its tiles and plans are searched"
    ),
    "tune.knob_list": "expected the values of '{knob}' to be a list, not {value}",
    "tune.knob_empty": "expected at least one value of '{knob}'",
    "tune.unknown_knob": (
        "cannot tune '{knob}' of '{function}': expected one of its parameters ({parameters}), or "
        "an option ({options})"
    ),
    "tune.no_value": (
        "cannot tune '{function}': its parameter '{parameter}' has no value; expected a list of "
        "them (space={{'{parameter}': [...]}}), or a default"
    ),
    "tune.unknown_key": ("cannot tune '{function}' for each '{key}': expected one of {parameters}"),
    "tune.of_function": ("cannot tell the extents of '{function}': it is a function of one's own"),
    "tune.no_knobs": "cannot tune '{function}': it has no knobs, and space= names none",
    "tune.settings": "cannot tune '{function}': {count} settings of its knobs, {most} at most",
    "tune.settings_differ": (
        "cannot tune '{function}': with {setting} it takes other arguments than with its first "
        "setting, so that their times do not compare"
    ),
    "tune.no_setting": "cannot tune '{function}': it fails with every setting of its knobs: {why}",
    "tune.no_schedule": (
        "cannot tune '{function}': expected it to return a PrimFunc, a Schedule or an IRModule "
        "with one PrimFunc, not {type}"
    ),
    "tune.no_such_setting": "cannot build '{function}' with {setting}: it is not what was tuned",
    "tune.remote_function": (
        "cannot measure '{function}' on a tracker's servers: what is right is only known here"
    ),
    "function.scalar": (
        "cannot measure '{function}': its parameter '{parameter}' is a number, of no known value"
    ),
    "function.symbolic": (
        "cannot measure '{function}': its parameter '{parameter}' has an extent that is open"
    ),
    "tune.seconds": "expected seconds to be above 0, not {value:g}",
    "tune.no_file": "cannot keep what is measured: name a file (db=, or PIPELINER_DB)",
    "tune.devices": "expected each GPU once, not {devices}",
    "tune.other_gpu": "cannot tune for {arch}: the GPU of this machine is {present}",
    "tune.no_best": "cannot name the best of '{workload}': no candidate ran",
    "tune.no_tile": "cannot tune '{workload}' for {machine}: {why}",
    "tune.alike": (
        "cannot tune: the first {trials} trials failed alike, none is recorded: {failure}"
    ),
    "tune.stopped": (
        "stopped after {trials:count trial}: of {left:count candidate} left one is faster by more "
        "than {gain:.0%} with a probability of {chance:.1%}, below {enough:.0%} (--all goes on)"
    ),
    "tune.wrong": (
        "cannot accept it: the emulator finds {hazards:count hazard} ({first}) and an error / "
        "bound of {error:.3g}"
    ),
    "tune.no_hazard": "no hazard",
    "tune.traces": "cannot tune '{workload}' by traces: none of its tiles can be replayed",
    "tune.not_workload": (
        "cannot tune a function that is no workload: expected pipeliner.meta.workload(...)"
    ),
    "tune.other_space": ("cannot find a candidate: the schedule is not of pipeliner's space"),
    "tune.candidate": "cannot read candidate {text!r}: {why}",
    "tune.workload": "cannot read workload {text!r}: {why}",
    "tune.kind": "expected a kind of {choices}, not {value!r}",
    "measure.not_compiled": "cannot compile: {why}",
    "measure.failed": "cannot measure: {why}",
    "measure.driver": "cannot read a CUDA graph: the driver returns status {status}",
    "measure.no_graphs": "cannot time calls back to back here: expected a GPU of this machine",
    "measure.wrong": "wrong: error / bound = {error:.3g}",
    "measure.wrong_later": "wrong after timing: error / bound = {error:.3g}",
    "tracker.address": "expected a tracker as HOST:PORT, not {value!r}",
    "tracker.silent": (
        "cannot ask the tracker {tracker}: nothing listens there (yet); expected "
        "'python -m tvm.exec.rpc_tracker --host {host} --port {port}{more}' to run"
    ),
    "tracker.failed": "cannot ask the tracker {tracker}: {why}",
    "tracker.no_server": (
        "cannot measure: the tracker {tracker} has no server of key '{key}' (yet); expected "
        "'{without} python -m tvm.exec.rpc_server --tracker {tracker} --key {key}' to run"
    ),
    "worker.ended": "cannot start a process: its pool is closed",
    "worker.timeout": "cannot wait any longer: nothing came for {seconds:g} s",
    "worker.died": "the process ended: {how}",
    "log.read": "cannot read the log '{path}': {why}",
    "log.line": "cannot read line {line} of the log '{path}': {why}",
    "log.columns": "expected {expected} columns, not {found}",
    "log.candidate": "expected a candidate such as 'mma/cp_async 64x64x32 d3', not {value!r}",
    "log.workload": "expected a workload of the suites {suites}, not {value!r}",
    "report.empty": "cannot report on '{db}': it has no records",
    "report.unreadable": (
        "cannot report on '{db}': none of its {count:count record} can be read: {first}"
    ),
    "report.machine": "expected a machine of {choices}, or the file of '{machine}' (--machine)",
    "report.candidate": "its candidate cannot be read",
    "report.older": "made by other versions than the newest",
    "report.matplotlib": (
        "cannot draw PNG: matplotlib is missing; pip install 'tvm-pipeliner[plot]'"
    ),
}
