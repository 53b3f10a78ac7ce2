"""Operators x instructions, tried through TVM."""

from celosia.compiler import parse
from celosia.compiler.route_coverage import route_pair as pair
from celosia.intrinsics import Contraction, Instruction, ScheduleError


def instruction(name, einsum, *types, **extents):
    return Instruction(name=name, contraction=Contraction(einsum, extents, *types))


MMA = instruction("mma", "mk,kn->mn", m=4, n=4, k=8)
DOT = instruction("dot", "k,k->", k=4)
CHANNEL = instruction("channel", "c,c->c", c=4)
NARROW = instruction("narrow", "k,k->", "int4", "int4", "int32", k=4)


def test_answers():
    operators = [parse("gemm:8x8x16"), parse("conv2d:1x6x6x3,5x3x3"), parse("dep:1x4x4x4x3x1x1x1"), parse("nrm:1x4x4")]
    found = [pair(operator, target) for operator in operators for target in (MMA, DOT, CHANNEL, NARROW)]
    answers = {(entry.operator.split(":")[0], entry.instruction): (entry.status, entry.route, entry.reason) for entry in found}
    assert answers["gemm", "mma"] == ("mapped", "direct", None)
    assert answers["conv2d", "mma"] == ("mapped", "layout", None)
    assert answers["dep", "mma"] == ("rejected", None, "axis-missing")
    assert answers["dep", "dot"] == ("mapped", "layout", None)
    assert answers["dep", "channel"] == ("mapped", "direct", None)
    assert answers["nrm", "dot"] == ("rejected", None, "shared-operand")
    assert answers["gemm", "narrow"] == ("rejected", None, "operand-dtype")
    assert found[0].to_dict()["calls"] == 8


def test_a_route_that_tvm_refuses_is_not_mapped(monkeypatch):
    from celosia.compiler import tensorize

    real = tensorize.apply

    def refuse_direct(operator, target, schedule):
        if schedule.route.kind == "direct":
            raise ScheduleError("refused for the test")
        return real(operator, target, schedule)

    monkeypatch.setattr(tensorize, "apply", refuse_direct)
    answer = pair(parse("gemm:8x8x16"), MMA)
    assert (answer.status, answer.route) == ("mapped", "layout")
    assert answer.attempts == {"direct": "refused", "padded": "divisibility", "layout": "mapped"}
    monkeypatch.setattr(tensorize, "apply", lambda *_: (_ for _ in ()).throw(ScheduleError("refused for the test")))
    answer = pair(parse("gemm:8x8x16"), MMA)
    assert (answer.status, answer.reason, answer.detail) == ("rejected", "refused", "refused for the test")


def test_the_proposer_of_tvm_is_only_reported():
    assert pair(parse("gemm:8x8x16"), MMA).tvm_proposal
    answer = pair(parse("conv2d:1x6x6x16,8x3x3,g2"), MMA)
    assert (answer.status, answer.tvm_proposal) == ("mapped", False)
