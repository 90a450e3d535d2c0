"""The alternatives to a plan have the times and reasons that asking for them gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeliner.choice.again import with_prediction
from pipeliner.choice.planned import planned
from pipeliner.diagnostics import Reason
from pipeliner.errors import BugWarning, PipelinerError, PlanError
from pipeliner.machine import A100, H100, T4, V100
from pipeliner.plan import SyncPlan
from pipeliner.plan.request import Request
from pipeliner.schedules import Gemm, GemmTile
from pipeliner.schedules.closed_form import kernel_info
from pipeliner.space import candidates
from pipeliner.space.alternatives import candidate_options, depth_options
from pipeliner.space.ranking import Ranking, choose, refusals
from tests.refusals import says, the

from .kernels import gemm, stream, with_copies

KERNELS = {
    "mma": (gemm(), A100, Request()),
    "wgmma": (gemm(128, 256, 64, trip=64, grid=(512,)), H100, Request()),
    "registers": (gemm(64, 64, 16), T4, Request()),
    "asked": (gemm(64, 64), A100, Request(depth=2, mechanism="register")),
    "no tile": (stream(), H100, Request()),
    "declined": (gemm(trip=1), A100, Request()),
}
_FREE = Request()
every_kernel = pytest.mark.parametrize("name", KERNELS)


def asked_us(info, machine, **options):
    """The predicted time, or the error's line, of a plan with that asked for."""
    try:
        return choose(info, machine, Request(**options)).predicted_us
    except PipelinerError as err:
        return err.reason


@every_kernel
def test_a_depth_takes_what_a_plan_takes_that_asks_for_it(name):
    info, machine, request = KERNELS[name]
    plan = choose(info, machine, request)
    (loop,) = depth_options(plan, Ranking(info, machine, request))
    assert [option.depth for option in loop.depths] == [*range(1, len(loop.depths) + 1)]
    # Left alone, a loop has not the copies that one slot would be asked for with.
    mechanism = plan.copies[0].mechanism if plan.pipelined and plan.copies else request.mechanism
    for option in loop.depths if plan.pipelined else loop.depths[1:]:
        options = {"depth": option.depth, "mechanism": mechanism}
        expected = asked_us(info, machine, **options)
        found = option.why if option.us is None else round(option.us, 2)
        assert found == expected, option


@every_kernel
def test_the_chosen_depth_is_the_plans(name):
    info, machine, request = KERNELS[name]
    plan = with_prediction(info, machine, choose(info, machine, request))
    (loop,) = depth_options(plan, Ranking(info, machine, request))
    chosen = [option for option in loop.depths if option.chosen]
    depths = {ring.depth for ring in plan.loops[0].rings} or {1}
    assert {option.depth for option in chosen} == depths
    assert [round(option.us, 2) for option in chosen] == [plan.predicted_us]


def test_the_first_depth_that_does_not_fit_ends_the_table_with_numbers():
    info = gemm(128, 256, 64, trip=64, grid=(512,))
    request = Request(instruction="mma")
    (loop,) = depth_options(choose(info, H100, request), Ranking(info, H100, request))
    last = loop.depths[-1]
    assert (last.depth, last.us, last.smem) == (5, None, 5 * 49152)
    assert the("depth.smem", [last.why])["smem"] == 245760


def listed(info, machine, request=_FREE):
    """The ranked list of a kernel, as ``--why`` shows it."""
    ranking = Ranking(info, machine, request)
    return candidate_options(ranking.explained(ranking.best()), ranking)


@every_kernel
def test_a_candidate_takes_what_a_plan_takes_that_asks_for_it(name):
    info, machine, request = KERNELS[name]
    ranking = Ranking(info, machine, request)
    for candidate in ranking.everything():
        if candidate.scalar:
            continue
        decided = {
            "auto": "cooperative" if candidate.is_possible and candidate.plan.roles else "auto"
        }
        way = candidate.decided
        way = replace(way, consumers=decided.get(way.consumers, way.consumers))
        if not candidate.is_possible:
            with pytest.raises(PipelinerError) as error:
                planned(info, machine, way.within(request))
            assert candidate.obstacle == error.value.reason
        elif way.instruction != "auto":
            assert choose(info, machine, way.within(request)).predicted_us == candidate.us


@every_kernel
def test_one_candidate_is_the_plan_and_no_other_was_to_be_taken(name):
    info, machine, request = KERNELS[name]
    plan = choose(info, machine, request)
    options = listed(info, machine, request)
    (chosen,) = (option for option in options if option.chosen)
    assert chosen.us == (plan.predicted_us or None)
    assert {chosen.instruction} == {"+".join(one.instruction for one in plan.matmuls)}
    for option in options:
        faster = option.us is not None and option.us < (chosen.us or 0.0)
        assert option.why or not faster
        assert option.why or option.us is not None or option.chosen


def test_the_list_is_in_the_order_in_which_candidates_are_tried():
    info = gemm(128, 256, 64, trip=64, grid=(512,))
    ranking = Ranking(info, H100, Request())
    names = [option.name for option in candidate_options(ranking.best().plan, ranking)]
    assert names[: len(list(ranking))] == [candidate.name for candidate in ranking]
    assert len(set(names)) == len(names)


def test_what_does_not_lower_is_compared_with_nothing():
    info = gemm(128, 256, 64, trip=64, grid=(512,))
    ranking = Ranking(info, H100, Request())
    tried = []
    for candidate in ranking:
        tried.append(candidate.name)
        ranking.refuse(candidate, "it does not fit")
    assert tried[0].startswith("wgmma, tma")
    assert tried[-1] == "nests shared out"
    ranking = Ranking(info, H100, Request())
    first, *_ = ranking
    ranking.refuse(first, "it does not fit")
    second = ranking.best()
    assert second.name != first.name
    said = ranking.explained(second).reasons
    assert not any(reason.args.get("what") == "wgmma" for reason in said if second.family == "mma")


def hinted(instruction):
    """A product whose schedule wants ``instruction``."""
    info = gemm()
    (loop,) = info.loops
    ops = [replace(op, instruction=instruction) if hasattr(op, "acc") else op for op in loop.ops]
    return replace(info, loops=(replace(loop, ops=tuple(ops)),))


@pytest.mark.parametrize(
    ("info", "accelerated", "families"),
    [
        (gemm(dtype="float32", k=16), True, {"simt", "scalar"}),
        (hinted("mma"), True, {"mma"}),
        (gemm(), False, {"mma", "simt", "scalar"}),
    ],
    ids=["float32", "mma", "sm_90"],
)
def test_what_does_not_lower_gives_way_to_what_may_be_had_alone(info, accelerated, families):
    ranking = Ranking(info, H100, Request(), accelerated=accelerated)
    assert {one.family for one in ranking if one.is_possible} == families


def test_a_cluster_that_cannot_be_had_leaves_its_reason():
    rows_in_two_lines = {"multicast": ((2, 1),), "src_strides": (4040, 1)}
    info = with_copies(gemm(256, 128, 64, grid=(1023,)), **rows_in_two_lines)
    plan = choose(info, H100, Request())
    assert plan.cluster == 1
    said = [one for one in plan.reasons if one.args.get("what") == "wgmma, clusters of 2"]
    assert the("choice.not_taken", said).why.code == "cluster.refused"


def test_a_bug_in_a_plan_that_is_compared_leaves_its_reason(monkeypatch):
    def broken(info, machine, request):
        if request.instruction == "auto":
            raise KeyError("A_shared")
        return planned(info, machine, request)

    monkeypatch.setattr(candidates, "planned", broken)
    with pytest.warns(BugWarning, match="KeyError"):
        plan = choose(gemm(128, 256, 64, trip=64, grid=(512,)), H100, Request())
    assert plan.matmuls[0].instruction.startswith("wgmma")
    said = [one for one in plan.reasons if one.args.get("what") == "no wgmma"]
    assert the("choice.not_taken", said).why.code == "plan.bug"


def test_exact_float32_says_why_faster_tensor_cores_are_not_taken():
    options = listed(gemm(dtype="float32", k=16), A100)
    simt = next(option for option in options if option.instruction == "simt")
    mma = next(option for option in options if option.instruction.startswith("mma."))
    assert simt.chosen
    assert mma.us < simt.us
    assert says("mapping.exact", [mma.why])


def test_a_copy_that_is_left_as_it_is_takes_as_long_as_with_one_slot():
    info = gemm()
    found = [option for option in listed(info, A100) if option.instruction.startswith("mma.")]
    options = {option.mechanism: option for option in reversed(found)}
    assert options["direct"].us == asked_us(info, A100, mechanism="direct", depth=1)
    assert options["direct"].us <= asked_us(info, A100, mechanism="direct", depth=3)
    assert says("choice.in_statement", [options["direct"].why])
    assert options["cp_async"].chosen
    assert options["cp_async"].us == choose(info, A100, Request()).predicted_us
    assert says("choice.if_asked", [options["register"].why])
    refused = next(option for option in listed(info, A100) if option.name == "no wgmma, tma")
    assert refused.why == asked_us(info, A100, mechanism="tma")


def test_before_ampere_the_reasons_name_what_is_missing():
    options = {option.name: option for option in listed(gemm(64, 64, 16), V100)}
    assert the("cp_async.machine", [options["no wgmma, cp_async"].why])["arch"] == "sm_70"
    assert options["simt, register"].chosen
    assert the("mapping.no_mma", [options["mma"].why])["dtype"] == "float16"


def test_a_stream_has_no_instruction():
    assert not any(option.instruction for option in listed(stream(), H100))


def test_a_depth_is_refused_as_a_request_for_it_is():
    info = gemm(128, 256, 64, trip=64)
    plan = choose(info, A100, Request())
    (loop,) = depth_options(plan, Ranking(info, A100, Request()))
    with pytest.raises(PlanError) as error:
        choose(info, A100, Request(depth=loop.depths[-1].depth))
    assert error.value.reason == loop.depths[-1].why


def test_what_the_passes_made_otherwise_is_marked_with_its_time_in_the_list():
    """A loop that is left alone after all has no ring, as the list says that it would."""
    info = stream()
    ranking = Ranking(info, H100, Request())
    plan = ranking.best().plan
    (loop,) = plan.loops
    why = Reason("schedule.nothing_overlaps", limiter="pipe alu", ii=1)
    alone = replace(loop, pipelined=False, rings=(), ops=(), reasons=(*loop.reasons, why))
    made = with_prediction(info, H100, replace(plan, loops=(alone,)))
    (chosen,) = (one for one in candidate_options(made, ranking) if one.chosen)
    assert (chosen.name, chosen.us, chosen.slots) == ("no wgmma", made.predicted_us, "")
    assert made.predicted_us > plan.predicted_us
    said = the("choice.left_alone", [chosen.why])
    assert (said["us"], said["loop"], said.why) == (plan.predicted_us, "i", why)
    other = replace(plan, copies=(), cluster=2)
    (chosen,) = (one for one in candidate_options(other, ranking) if one.chosen)
    assert the("choice.as_made", [chosen.why])["us"] == plan.predicted_us


def test_what_tvm_makes_is_no_candidate():
    ranking = Ranking(gemm(), A100, Request())
    left = replace(ranking.best().plan, sync=SyncPlan(by="tvm"))
    assert ranking.taken(left) is None
    assert not any(one.chosen for one in candidate_options(left, ranking))
    assert depth_options(left, ranking) == ()


def test_what_was_taken_is_the_first_that_the_passes_did_not_refuse():
    ranking = Ranking(gemm(128, 256, 64, trip=64, grid=(512,)), H100, Request())
    first, second, third, *_ = ranking
    for one in (first, second):
        ranking.refuse(one, Reason("choice.if_asked"))
    plan = ranking.explained(third)
    assert list(refusals(plan)) == [first.name, second.name]
    assert ranking.taken(plan) is third
    options = {one.name: one for one in candidate_options(plan, ranking)}
    assert [name for name, one in options.items() if one.chosen] == [third.name]
    assert options[first.name].why == Reason("choice.if_asked")


def test_the_other_way_to_store_is_listed_with_its_time():
    spec = Gemm(4096, 4096, 4096)
    info = kernel_info(spec, GemmTile(128, 256, 64, persistent=132))
    plan = choose(info, H100, Request())
    assert {store.mechanism for store in plan.stores} == {"tma"}
    options = {one.name: one for one in listed(info, H100)}
    direct = choose(info, H100, Request(instruction="wgmma", store="direct"))
    assert options["wgmma, tma, direct store"].us == direct.predicted_us > plan.predicted_us


@every_kernel
def test_what_is_pinned_leads_to_the_candidate(name):
    """A search or a correction asks for a candidate of the list by what it decides."""
    info, machine, request = KERNELS[name]
    ranking = Ranking(info, machine, request)
    for candidate in ranking:
        if candidate.is_possible and not candidate.scalar:
            made = choose(info, machine, candidate.pinned.within(request))
            assert made.predicted_us == candidate.us
            mapped, own = (
                [(m.instruction, m.warps) for m in p.matmuls] for p in (made, candidate.plan)
            )
            assert mapped == own


@every_kernel
def test_a_candidate_keeps_the_depths_of_its_loops(name):
    """Each is predicted as a plan that asks for it is; the plan has one of them."""
    info, machine, request = KERNELS[name]
    candidate = Ranking(info, machine, request).best()
    (loop,) = candidate.loops
    pinned = candidate.pinned
    fitting = loop.depths.fitting
    assert [found.depth for found in fitting] == [*range(1, len(fitting) + 1)]
    for found in fitting[candidate.plan.pipelined is False :]:
        made = choose(info, machine, replace(pinned, depth=found.depth).within(request))
        assert made.predicted_us == round(found.us, 2)
    beyond = fitting[-1].depth + 1
    assert beyond > loop.depths.most or loop.depths.at(beyond) is None
