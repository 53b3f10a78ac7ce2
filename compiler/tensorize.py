"""Operators onto instructions, performed by TVM: design spaces as MetaSchedule traces, and single schedules."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import tvm
from tvm.s_tir import Schedule as TvmSchedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace
from tvm.target import Target

from ..intrinsics import CelosiaError, Instruction, Machine, ScheduleError
from ..intrinsics.tensor_intrin import install_stub, register
from .nest import find
from .operators import Operator
from .postproc import RequireIntrinsic
from .routes import instruction_of
from .rule import Sketch, TensorizeRule
from .schedule import Schedule, schedule_space
from .sketch import MARK

_SAMPLE = "SamplePerfectTile"


def intrinsic_of(target: Machine | Instruction) -> str:
    """Register the intrinsic of a machine (calls its design) or of an instruction (plain loops); return its name."""
    return register(instruction_of(target), design_hash=target.design_hash if isinstance(target, Machine) else None)


def sketches(operator: Operator, target: Machine | Instruction) -> list[Sketch]:
    """Every (route, loop order) of an operator on an instruction."""
    space = schedule_space(operator, target)
    return list(itertools.product(space.routes, (str(order) for order in space.variables[1].values)))


def generator(
    operator: Operator, target: Machine | Instruction, *, only: Sequence[Sketch] | None = None, intrinsic: str | None = None
) -> Any:
    """MetaSchedule's space generator for an operator: our rule, tensorization, and the check that it took place.

    Parameters
    ----------
    operator, target : what is mapped onto what
    only : sequence of sketches or None
        Restrict the space; None for all sketches.
    intrinsic : str or None
        Name of a registered intrinsic to use in place of the target's own (tests of checks).
    """
    rule = TensorizeRule(
        operator=operator,
        contraction=instruction_of(target).contraction,
        sketches=tuple(only) if only is not None else tuple(sketches(operator, target)),
        intrinsic=intrinsic or intrinsic_of(target),
    )
    postprocs = [ms.postproc.RewriteTensorize(vectorize_init_loop=False), RequireIntrinsic()]
    return ms.space_generator.PostOrderApply(sch_rules=[rule], postprocs=postprocs, mutator_probs={})


def design_space(
    operator: Operator,
    target: Machine | Instruction,
    *,
    only: Sequence[Sketch] | None = None,
    intrinsic: str | None = None,
    seed: int = 0,
) -> list[Any]:
    """The sketches as TVM schedules, one per (route, loop order), in the order of `sketches`; splits are sampled by ``seed``."""
    install_stub()
    context = ms.TuneContext(
        mod=_module(operator),
        target=Target({"kind": "llvm", "num-cores": 1}),
        space_generator=generator(operator, target, only=only, intrinsic=intrinsic),
        rand_state=seed + 1,
        num_threads=1,
    )
    return list(context.generate_design_space())


def _module(operator: Operator) -> Any:
    return tvm.IRModule({"main": operator.prim_func()})


@functools.lru_cache(maxsize=512)
def _sketch(operator: Operator, instruction: Instruction, route_and_order: Sketch, intrinsic: str) -> tuple[Any, Any]:
    """Unscheduled module and trace of one sketch."""
    try:
        (design,) = design_space(operator, instruction, only=[route_and_order], intrinsic=intrinsic)
    except CelosiaError:
        raise
    except (KeyError, ValueError, RuntimeError):
        # TVM's layout primitives lose iterators of extent 1, such as the only channel of a padded image, and say so in many ways.
        route = route_and_order[0].kind
        raise ScheduleError(f"{operator.name} on {instruction.name}: TVM does not perform the route {route}") from None
    return _module(operator), design.trace


def apply(operator: Operator, target: Machine | Instruction, schedule: Schedule, *, intrinsic: str | None = None) -> Any:
    """Perform a schedule: replay the trace of its sketch with its splits as decisions, and tensorize.

    Parameters
    ----------
    operator : Operator
    target : Machine or Instruction
        A machine's design is called; an instruction becomes plain loops.
    schedule : Schedule
    intrinsic : str or None
        Name of a registered intrinsic to use in place of the target's own (tests of checks).

    Returns
    -------
    IRModule whose ``main`` takes the inputs and the output, and holds one nest of tile calls equal to ``schedule.nest``.

    Raises
    ------
    ScheduleError
        If TVM refuses.
    """
    name = intrinsic or intrinsic_of(target)
    module, trace = _sketch(operator, instruction_of(target), (schedule.route, schedule.order), name)
    sch = TvmSchedule(module, seed=1, debug_mask="none", error_render_level="none")
    Trace(trace.insts, _decisions(trace, schedule)).apply_to_schedule(sch, remove_postproc=True)
    _tensorize(sch, name, f"{operator.name} on {instruction_of(target).name}, route {schedule.route.kind}")
    return sch.mod


def _decisions(trace: Any, schedule: Schedule) -> dict[Any, Any]:
    samples = [inst for inst in trace.insts if inst.kind.name == _SAMPLE]
    loops = schedule.route.split_loops
    return {inst: [loop.extent // inner, inner] for inst, loop, inner in zip(samples, loops, schedule.inner, strict=True)}


def _tensorize(sch: Any, intrinsic: str, what: str) -> None:
    root = sch.get_sblock("root")
    marked = [block for block in sch.get_child_blocks(root) if MARK in sch.get(block).annotations]
    try:
        for block in marked:
            sch.unannotate(block, MARK)
            sch.tensorize(block, intrinsic)
    except tvm.s_tir.ScheduleError as error:
        raise ScheduleError(f"{what}: TVM refuses the tile ({_first_line(error)})") from None
    if find(sch.mod) is None:
        raise ScheduleError(f"{what}: the tile call is missing, or its nest holds other blocks")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
