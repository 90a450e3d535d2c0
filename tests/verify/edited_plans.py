"""Plans edited at random and handed back: obeyed and right, or refused in one line.

python -m tests.verify.edited_plans --programs 5000 --shard 1/4

Plans of every kind, of kernels as small as shows the kind. An edit changes one to three fields, by
the JSON that a person would edit, to anything: other numbers, other words that the field knows,
wrong types, parts dropped, repeated and exchanged. What is accepted must come out as it went in,
run without a hazard, and give the values that the kernel gives whose plan nobody edited.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tvm_ffi

import pipeliner
from pipeliner import KernelPlan
from pipeliner.errors import PipelinerError
from pipeliner.plan import SmemPlan, SyncPlan
from pipeliner.plan.comparing import FREE, difference
from pipeliner.schedules import ConvTile, GemmTile, conv2d, schedule_conv, schedule_gemm
from pipeliner.schedules.workloads import Gemm
from pipeliner.verification.subjects import random_arguments

from ..corpus import annotated, loops
from .runner import add_options, doing, options_of, run

BATCH: Final = 25
"""Edits of one seed."""

ATTR: Final = "pipeliner.plan"

WORDS: Final = {
    "source": ("auto", "request", "annotation", "edited"),
    "epilogue": ("rolled", "clamped", "peeled"),
    "mechanism": ("direct", "register", "cp_async", "tma"),
    "cache": ("L1", "L2"),
    "eviction": ("evict_normal", "evict_first"),
    "view": ("tensor", "flattened", "window", "im2col"),
    "operand": ("shared", "registers"),
    "layout": ("row-major", "padded-16B", "swizzle-128B", "swizzle-64B", "rotated-128B", ""),
    "instruction": ("simt", "mma.m16n8k16.f16.f32", "wgmma.m64n64k16.f16.f32", "wgmma", ""),
    "kind": ("copy", "load", "store", "wait", "mma", "mma_wait", "compute", "opaque"),
    "sync": ("none", "cp_async", "mbarrier"),
    "scope": ("shared", "shared.dyn", "local", "global"),
    "role": ("all", "producer", "consumer"),
}
"""Words that fields of these names know, and some that only others do."""


def _gemm(m: int, n: int, k: int, tile: GemmTile, **options: Any) -> Callable[[], Any]:
    return lambda: schedule_gemm(Gemm(m, n, k, **options), tile)


def _conv(channels: int, tile: ConvTile) -> Callable[[], Any]:
    return lambda: schedule_conv(conv2d(1, 8, 8, channels, 64, 3, 3, pad=1), tile)


def _corpus(module: Any, name: str) -> Callable[[], Any]:
    return lambda: next(case for case in module.CASES if case.name == name).build()


@dataclass(frozen=True)
class Subject:
    """A function whose plan is edited, and how that plan is asked for."""

    build: Callable[[], Any]
    target: str
    options: dict[str, Any]


_WIDE: Final = {"instruction": "wgmma"}

SUBJECTS: Final = {
    "mma.sync": Subject(_gemm(32, 32, 96, GemmTile(32, 32, 32)), "a100", {"depth": 2}),
    "mma.sync, rings that differ": Subject(
        _gemm(32, 32, 96, GemmTile(32, 32, 32)), "a100", {"depth": {"A_shared": 2, "B_shared": 3}}
    ),
    "through registers": Subject(
        _gemm(32, 32, 64, GemmTile(32, 32, 32)), "a100", {"mechanism": "register", "depth": 2}
    ),
    "peeled, padding": Subject(
        _gemm(32, 32, 72, GemmTile(32, 32, 32)), "a100", {"epilogue": "peeled", "depth": 2}
    ),
    "simt": Subject(_gemm(32, 32, 32, GemmTile(32, 32, 8), dtype="float32"), "a100", {"depth": 2}),
    "left alone": Subject(_gemm(32, 32, 32, GemmTile(32, 32, 32)), "a100", {}),
    "volta": Subject(_gemm(32, 32, 64, GemmTile(32, 32, 32)), "v100", {}),
    "split": Subject(_gemm(32, 32, 128, GemmTile(32, 32, 32, splits=2)), "a100", {"depth": 2}),
    "wgmma, cp.async": Subject(
        _gemm(64, 16, 256, GemmTile(64, 16, 32)), "h100", _WIDE | {"mechanism": "cp_async"}
    ),
    "wgmma, cp.async, in flight": Subject(
        _gemm(64, 16, 256, GemmTile(64, 16, 32)),
        "h100",
        _WIDE | {"mechanism": "cp_async", "depth": 4},
    ),
    "roles": Subject(
        _gemm(64, 16, 96, GemmTile(64, 16, 32)), "h100", _WIDE | {"mechanism": "tma", "depth": 2}
    ),
    "ping-pong": Subject(
        _gemm(128, 64, 64, GemmTile(64, 64, 32, persistent=1)), "h100", {"consumers": "ping-pong"}
    ),
    "cluster": Subject(_gemm(128, 32, 64, GemmTile(64, 32, 32)), "h100", _WIDE | {"cluster": 2}),
    "swap_ab": Subject(_gemm(8, 64, 64, GemmTile(8, 64, 32)), "h100", dict(_WIDE)),
    "stored by tma": Subject(
        _gemm(64, 64, 64, GemmTile(64, 64, 32)), "h100", _WIDE | {"store": "tma"}
    ),
    "added": Subject(
        _gemm(64, 64, 128, GemmTile(64, 64, 32, splits=2)), "h100", {"reduction": "atomic"}
    ),
    "split, launched early": Subject(
        _gemm(64, 64, 128, GemmTile(64, 64, 32, splits=2)), "h100", {}
    ),
    "operand in registers": Subject(
        _gemm(64, 16, 64, GemmTile(64, 16, 32)), "h100", _WIDE | {"operand": "registers"}
    ),
    "convolution": Subject(_conv(16, ConvTile(64, 64, 16)), "a100", {"depth": 2}),
    "convolution by tma": Subject(_conv(32, ConvTile(64, 64, 32)), "h100", {}),
    "annotated": Subject(_corpus(annotated, "annotated_three_stages_reordered"), "a100", {}),
    "annotated, asynchronous": Subject(
        _corpus(annotated, "annotated_async_interleaved"), "a100", {}
    ),
    "streaming": Subject(_corpus(loops, "stream_scale_dynamic"), "a100", {}),
    "gather": Subject(_corpus(loops, "gather_sum"), "a100", {}),
    "annotated, bound": Subject(_corpus(annotated, "annotated_dynamic_trip"), "a100", {}),
}

EXTENTS: Final = {"n": 7}


@dataclass(frozen=True)
class Ready:
    """A subject pipelined once: its function, its plan as JSON, its arguments and outputs."""

    func: Any
    done: Any
    plan: dict[str, Any]
    arguments: list[Any]
    outputs: dict[str, Any]


@functools.cache
def ready(name: str) -> Ready:
    """The subject called ``name``, which must be right before anything is edited."""
    subject = SUBJECTS[name]
    func = subject.build()
    done = pipeliner.pipeline(func, subject.target, **subject.options)
    arguments = random_arguments(done, 0, integers=True, extents=EXTENTS)
    result = pipeliner.build(done).emulate(*arguments)
    assert not result.hazards, name
    return Ready(func, done, json.loads(str(done.attrs[ATTR])), arguments, result.outputs)


def edited(plan: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], list[str]]:
    """``plan`` with one to three fields edited, and what was done."""
    plan = copy.deepcopy(plan)
    if rng.random() < 0.4:
        done = [_decide(plan, rng) for _ in range(rng.choice((1, 1, 2)))]
        for part in ("smem", "sync", "mbarriers"):
            plan.pop(part, None)
        return plan, done
    done = [_edit(plan, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    if rng.random() < 0.5:  # as the refusal advises
        for part in ("smem", "sync", "mbarriers"):
            plan.pop(part, None)
        done.append("without what follows")
    if rng.random() < 0.15:
        for loop in plan.get("loops", []):
            if isinstance(loop, dict):
                loop["edges"] = []
        done.append("without edges")
    return plan, done


def _edit(plan: dict[str, Any], rng: random.Random) -> str:
    """Change one field of ``plan`` in place; in words."""
    at: Any = plan
    path = "plan"
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return f"{path} is empty"
        if path == "plan":  # loops have most to decide
            keys += ["loops"] * 4 * ("loops" in plan) + ["copies"] * ("copies" in plan)
        key = rng.choice(keys)
        value = at[key]
        path += f".{key}" if isinstance(at, dict) else f"[{key}]"
        deeper = isinstance(value, (dict, list)) and bool(value)
        if not deeper or rng.random() < 0.07:
            break
        at = value
    new = _other(str(key), value, rng)
    if new is _DROPPED:
        del at[key]
        return f"{path} dropped"
    at[key] = new
    return f"{path}: {json.dumps(value)[:60]} -> {json.dumps(new)[:60]}"


def _decide(plan: dict[str, Any], rng: random.Random) -> str:
    """Decide something otherwise in ``plan``, with what that takes; in words."""
    loop = rng.choice(plan["loops"])
    parts = {"ops": loop["ops"], "rings": loop["rings"], "copies": plan["copies"]}
    wanted = rng.choice(
        [name for name, part in parts.items() if part] * 3 + ["epilogue", "launch", "stores"]
    )
    if wanted == "rings":
        ring = rng.choice(loop["rings"])
        ring["depth"] = max(1, ring["depth"] + rng.choice((-1, 1, 1, 2)))
        if rng.random() < 0.7:
            ring["requested"], loop["edges"], loop["source"] = True, [], "request"
        return f"{ring['depth']} slots of {ring['buffer']}, {len(loop['edges'])} edges"
    if wanted == "ops":
        one, other = rng.choice(loop["ops"]), rng.choice(loop["ops"])
        one["order"], other["order"] = other["order"], one["order"]
        one["stage"] += rng.choice((0, 0, 0, 1, -1))
        if rng.random() < 0.5:
            for op in loop["ops"]:
                if op["kind"] == "mma_wait":
                    op["stage"] += rng.choice((0, 1, -1))
        return f"{one['name']} in place of {other['name']}, in stage {one['stage']}"
    if wanted == "copies":
        moved = rng.choice(plan["copies"])
        if rng.random() < 0.3:
            moved["cache"], moved["eviction"] = (
                rng.choice(("L1", "L2")),
                rng.choice(("normal", "first")),
            )
            return f"{moved['op']} by {moved['cache']}, evicted {moved['eviction']}"
        some = plan["copies"] if rng.random() < 0.5 else [moved]
        way = rng.choice(WORDS["mechanism"])
        for one in some:
            one["mechanism"] = way
        for one in plan["loops"]:
            one["edges"] = []
        return f"{len(some)} copies by {way}"
    if wanted == "launch":
        plan["launch"] = {"early": rng.random() < 0.5, "releases": rng.choice(([], [0], [0, 1]))}
        return f"launched {plan['launch']}"
    if wanted == "stores" and plan["stores"]:
        store = rng.choice(plan["stores"])
        store["slots"] = rng.choice((1, 2, 4))
        store["bytes"] = store["bytes"] * store["slots"] // 2
        return f"{store['slots']} slots of {store['op']}"
    loop["epilogue"] = rng.choice(WORDS["epilogue"])
    return f"epilogue {loop['epilogue']}"


_DROPPED: Final = object()


def _other(key: str, value: Any, rng: random.Random) -> Any:
    """Something else in place of ``value`` of field ``key``."""
    if rng.random() < 0.06:
        return rng.choice([None, "x", 1.5, [], {}, -1, True, _DROPPED])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (value + 1, value - 1, value + 1, value - 1, 0, 1, 2, -1, 2 * value, value // 2)
        return rng.choice((*near, 99, 1000, 10**9, 2**63))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, value * 2, 1e300))
    if isinstance(value, str):
        return rng.choice((*WORDS.get(key, ()), value + "x", "", "A_shared", "7", "n"))
    if isinstance(value, list):
        parts = list(value)
        rng.shuffle(parts)
        return rng.choice(([], value[1:], value[:-1], value + value[:1], parts))
    return rng.choice((_DROPPED, {}))


def outcome(name: str, rng: random.Random) -> str:
    """Check one edit of subject ``name``: ``obeyed``, ``same code`` or ``refused``."""
    known = ready(name)
    plan, what = edited(known.plan, rng)
    about = f"{name}: {'; '.join(what)}"
    doing(about)
    try:
        given = KernelPlan.from_json(json.dumps(plan))
        done = pipeliner.pipeline(known.func, SUBJECTS[name].target, plan=given)
    except PipelinerError as err:
        if len(str(err).splitlines()) != 1:
            raise AssertionError(f"{about}\n{err}") from err
        return "refused"
    except Exception as err:
        raise AssertionError(f"{about}\n{type(err).__name__}: {err}") from err
    _check_same(given, pipeliner.plan_of(done), about)
    if tvm_ffi.structural_equal(done.without_attr(ATTR), known.done.without_attr(ATTR)):
        return "same code"
    timing = rng.choice(("late", "early", "random"))
    order = rng.choice(("lockstep", "random", "reversed"))
    result = pipeliner.build(done).emulate(*known.arguments, timing=timing, order=order)
    assert not result.hazards, "\n".join([about, *map(str, result.hazards)])
    for output, want in known.outputs.items():
        np.testing.assert_array_equal(result.outputs[output], want, err_msg=f"{output}\n{about}")
    return "obeyed"


def _check_same(given: KernelPlan, done: KernelPlan, about: str) -> None:
    """What was decided came out as it went in, and so did all that was not left out."""
    for part, empty in (("mbarriers", ()), ("smem", SmemPlan()), ("sync", SyncPlan())):
        if getattr(given, part) != empty:
            found = difference(getattr(given, part), getattr(done, part), part)
            assert not found, f"{about}\n{found}"
    for part in ("kernel", "target", "threads", "cluster", "launch", "copies", "stores", "roles"):
        found = difference(getattr(given, part), getattr(done, part), part)
        assert not found, f"{about}\n{found}"
    for loop, made in zip(given.loops, done.loops, strict=True):
        if loop.edges or not loop.pipelined or loop.source == "edited":
            whole = loop if loop.edges else replace(loop, edges=made.edges)
            found = difference(whole, made, loop.name, FREE)
        else:
            depths = {ring.buffer: ring.depth for ring in made.rings}
            wrong = [r.buffer for r in loop.rings if depths.get(r.buffer, 1) != r.depth]
            found = f"depth of {wrong}" if wrong else ""
        assert not found, f"{about}\n{found}"


def check_seed(number: int, edits: int = BATCH) -> Counter[str]:
    """Outcomes of ``edits`` edits, of subjects in turn."""
    rng = random.Random(number)
    names = list(SUBJECTS)
    first = number * edits
    return Counter(outcome(names[at % len(names)], rng) for at in range(first, first + edits))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=5_000, help="edits")
    add_options(parser)
    args = parser.parse_args()
    options = options_of(args)
    seeds = options.part(range(-(-args.programs // BATCH)))
    return 0 if run("edited plans", check_seed, seeds, options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
