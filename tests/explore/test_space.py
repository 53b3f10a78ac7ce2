"""Spaces: domains, conditions, constraints, vectors, and the way through Nevergrad and back."""

import math
import re

import numpy as np
import pytest

from celosia.explore.nevergrad_space import NevergradSpace
from celosia.explore.space import Constraint, Space
from celosia.explore.variables import Bool, Choice, Divisors, IntRange, ListOf, Ordered, Permutation, PowerOfTwo
from celosia.intrinsics import ParameterError


def small_space() -> Space:
    return Space(
        [
            Choice("family", options=("systolic", "dot")),
            IntRange("rows", low=2, high=6, step=2, when={"family": "systolic"}),
            PowerOfTwo("lanes", low=1, high=8, when={"family": "dot"}),
            Bool("resident", when={"family": "dot"}),
            Divisors("tile", of=12, largest=6),
            Permutation("order", items=("m", "n", "k")),
            ListOf("pads", elements=(IntRange("x", low=0, high=2), Bool("y"))),
            Choice("one", options=("only",)),
            Ordered("depth", options=(1, 3, 9)),
        ],
        [
            Constraint(
                name="fits", needs=("rows", "tile"), holds=lambda rows, tile: rows * tile <= 24, message="rows x tile must be at most 24"
            )
        ],
    )


def test_size_counts_active_variables() -> None:
    shared = 5 * 6 * 6 * 1 * 3
    assert small_space().size == 3 * shared + 4 * 2 * shared


def test_enumerate_obeys_constraints() -> None:
    space = Space(small_space().variables[:2] + small_space().variables[4:5], small_space().constraints)
    found = list(space.enumerate())
    assert len(found) == 3 * 5 - 1 + 5  # only rows = 6, tile = 6 is out
    assert {"family": "systolic", "rows": 6, "tile": 6} not in found


def test_every_random_assignment_is_valid_and_survives_both_round_trips() -> None:
    space, rng = small_space(), np.random.default_rng(1)
    nevergrad = NevergradSpace(space)
    for _ in range(300):
        assignment = space.random(rng)
        space.validate(assignment)
        assert space.decode(space.encode(assignment)) == assignment
        assert nevergrad.decode(nevergrad.encode(assignment)) == assignment


def test_whole_domain_of_each_variable_round_trips() -> None:
    for variable in small_space().variables:
        values = variable.values
        assert len(values) == variable.size == len(set(values))
        for index, value in enumerate(values):
            assert variable.at(index) == value
            assert variable.decode(variable.encode(value)) == value
            variable.check(value)


def test_ordered_domains_stay_ordered_in_nevergrad() -> None:
    space = Space([IntRange("rows", low=2, high=16), PowerOfTwo("lanes", low=1, high=64)])
    nevergrad = NevergradSpace(space)
    codes = [nevergrad.encode({"rows": rows, "lanes": 1})[0] for rows in range(2, 17)]
    assert codes == sorted(codes)
    assert len(set(codes)) == 15


def test_nevergrad_proposals_reach_every_value_and_nothing_else() -> None:
    space = Space([Choice("c", options=("a", "b", "c")), IntRange("i", low=-1, high=2)])
    nevergrad = NevergradSpace(space)
    parametrization = nevergrad.parametrization(seed=3)
    seen = set()
    for _ in range(300):
        assignment = nevergrad.decode(parametrization.sample().value)
        space.validate(assignment)
        seen.add(tuple(assignment.values()))
    assert len(seen) == 12


def test_neighbours_differ_by_one_step_and_complete_what_becomes_active() -> None:
    space = small_space()
    start = {"family": "systolic", "rows": 4, "tile": 6, "order": ("m", "n", "k"), "pads": (0, False), "one": "only", "depth": 1}
    found = list(space.neighbours(start))
    for assignment in found:
        space.validate(assignment)
    switched = [assignment for assignment in found if assignment["family"] == "dot"]
    assert switched == [{**{k: v for k, v in start.items() if k != "rows"}, "family": "dot", "lanes": 2, "resident": False}]
    assert [a["rows"] for a in found if a.get("rows", 4) != 4] == [2]  # rows = 6 would break the constraint


def test_validate_messages() -> None:
    space = small_space()
    good = {
        "family": "dot",
        "lanes": 4,
        "resident": True,
        "tile": 3,
        "order": ("k", "n", "m"),
        "pads": (1, True),
        "one": "only",
        "depth": 9,
    }
    space.validate(good)
    cases = [
        ({"lanes": 5}, r"lanes must be one of 1, 2, 4, 8, not 5; nearest legal value: 4"),
        ({"resident": 1}, r"resident must be one of False, True, not 1; nearest legal value: .*"),
        ({"rows": 4}, r"rows must be absent: it exists only when family is 'systolic'"),
        (
            {"order": ("m", "m", "k")},
            r"order must be one of the 6 orders of m, n, k, not \('m', 'm', 'k'\); nearest legal value: \('m', 'n', 'k'\)",
        ),
        (
            {"pads": (3, True)},
            r"pads must be one of lists of \(0, 1, 2\); \(False, True\), not \(3, True\); nearest legal value: \(2, True\)",
        ),
        ({"lane": 4}, r"no variable is called 'lane'; nearest: 'lanes'"),
    ]
    for change, message in cases:
        with pytest.raises(ParameterError, match=f"^{message}$"):
            space.validate({**good, **change})
    del good["tile"]
    with pytest.raises(ParameterError, match=r"^tile is missing; allowed: 1, 2, 3, 4, 6$"):
        space.validate(good)


def test_violated_constraint_is_named() -> None:
    bad = {"family": "systolic", "rows": 6, "tile": 6, "order": ("m", "n", "k"), "pads": (0, False), "one": "only", "depth": 1}
    message = "constraint 'fits' is violated by rows = 6, tile = 6: rows x tile must be at most 24"
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        small_space().validate(bad)


def test_contradictory_constraints_are_reported() -> None:
    never = Constraint(name="never", needs=("x",), holds=lambda x: False, message="nothing is legal")
    with pytest.raises(
        ParameterError, match=r"^no assignment satisfies the constraints \(never\) in \d+ random tries; loosen one of them$"
    ):
        Space([Bool("x")], [never]).random(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerOfTwo("p", low=1, high=12), r"high of p must be a power of two, not 12; nearest legal value: 16"),
        (lambda: IntRange("i", low=3, high=2), r"high of i must be at least low = 3, not 2; nearest legal value: 3"),
        (lambda: IntRange("i", low=0, high=2, step=0), r"step of i must be at least 1, not 0; nearest legal value: 1"),
        (lambda: Choice("c", options=()), r"variable 'c' must have at least one value in its domain"),
        (lambda: Choice("c", options=(1, 1)), r"variable 'c' must not list a value twice: \(1, 1\)"),
        (lambda: Divisors("d", of=0), r"of of d must be at least 1, not 0; nearest legal value: 1"),
        (lambda: Space([Bool("a"), Bool("a")]), r"variable 'a' is declared twice; names in a space must be unique"),
        (lambda: Space([Bool("a", when={"b": True})]), r"variable 'a' depends on 'b', which must be declared before it"),
    ],
)
def test_bad_declarations(make: object, message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}$"):
        make()  # type: ignore[operator]


def test_permutation_sizes_without_enumeration() -> None:
    big = Permutation("big", items=tuple(range(20)))
    assert big.size == math.factorial(20)
    assert big.at(big.size - 1) == tuple(reversed(range(20)))
