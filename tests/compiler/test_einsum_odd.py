"""Functions written by hand: read soundly or rejected; never mapped to something else than they compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from celosia.compiler.coverage import coverage
from celosia.compiler.enumerate import best_map
from celosia.compiler.reasons import Reason, Rejected
from celosia.compiler.tasks import Task, tasks
from celosia.compiler.verify import split_params, verify
from celosia.intrinsics import MappingError

from .fixtures.small_operators import instruction

FILE = Path(__file__).parent / "fixtures" / "odd_functions.py"
ENTRY = instruction("smmla", "mk,nk->mn", m=2, n=2, k=8)


@pytest.fixture(scope="module")
def functions() -> dict[str, Task]:
    return {item.name: item for item in tasks(str(FILE))}


REJECTED = {
    "starts_at_five": (Reason.NOT_SUM, "block C starts its sum at 5, not at 0"),
    "subtracts": (Reason.NOT_SUM, "block C combines by sub over vk, not by a sum"),
    "adds_to_another_element": (Reason.NOT_SUM, "block C adds to another element of C than it reads"),
    "runs_under_a_condition": (Reason.GUARDED, "block C runs only where k < 12"),
    "runs_over_a_part": (Reason.GUARDED, "block C does not run exactly once at each point of its iterators"),
    "multiplies_in_eight_bits": (Reason.OPERAND_EXPRESSION, "the product of A and B is cut to int8, which drops bits of it"),
    "shifts_in_eight_bits": (Reason.OPERAND_EXPRESSION, "operand A is cut to int8, which drops bits of int8 data"),
}
MAPPED = (
    "has_split_loops",
    "reads_a_computed_operand",
    "reads_a_gathered_operand",
    "multiplies_in_sixteen_bits",
    "sums_in_sixty_four_bits",
    "reads_a_weight_twice",
)


def test_the_file_holds_nothing_else(functions):
    assert set(functions) == {*REJECTED, *MAPPED}


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_not_computed_by_a_map_is_rejected(functions, name):
    answer = functions[name].parsed
    assert isinstance(answer, Rejected)
    assert (answer.reason, answer.detail) == REJECTED[name]
    assert "price" in answer.change or "costs" in answer.change


@pytest.mark.parametrize("name", MAPPED)
def test_what_is_mapped_is_computed(functions, name):
    item = functions[name]
    mapped = best_map(item.parsed.einsum, ENTRY)
    for offline in (False, True):
        assert verify(mapped, item.parsed, offline=offline).matches
        assert not verify(mapped, item.parsed, offline=offline, fault="index").matches


def test_products_that_are_not_mapped_count_in_the_totals(functions):
    report = coverage([functions["has_split_loops"], functions["starts_at_five"]], [ENTRY])
    assert [pair.macs for pair in report.pairs] == [1024, 1024]
    assert report.summary[0]["mac_share"] == 0.5


def test_outputs_come_last(functions):
    from tvm import tirx

    func = functions["reads_a_weight_twice"].build()
    inputs, outputs = split_params(func)
    assert [param.name for param in inputs] == ["A", "B"]
    assert [param.name for param in outputs] == ["C", "D"]
    turned = tirx.PrimFunc([*outputs, *inputs], func.body, None, func.attrs)
    with pytest.raises(MappingError, match="outputs must be the last parameters"):
        split_params(turned)
