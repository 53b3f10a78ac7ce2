"""What the check of a program remembers of commands of one shape changes none of its answers, and its bytes are those that are touched."""

import re

import pytest

from celosia.intrinsics import ParameterError
from celosia.intrinsics.accelerator import Op, legality
from celosia.intrinsics.accelerator.legality import check_commands

from .scalar_accelerator import Scalar
from .test_accelerator_functional import changed, programs


class Forgetful(legality._Checker):
    """Remembers nothing."""

    def check(self):
        for rows in self.rows.values():
            rows.clear()
        self.beats.clear()
        self.computes.clear()
        super().check()


def answer(machine, program):
    """The message of the check, or nothing."""
    try:
        check_commands(machine, program)
    except ParameterError as error:
        return str(error)
    return ""


def forgetful(machine, program, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(legality, "_Checker", Forgetful)
        return answer(machine, program)


def test_what_is_remembered_changes_no_answer(monkeypatch):
    refused = 0
    for machine, program, _, rng in programs(4, 40):
        for _ in range(8):
            other = changed(program, rng)
            refused += bool(answer(machine, other))
            assert answer(machine, other) == forgetful(machine, other, monkeypatch)
    assert refused > 100


@pytest.mark.parametrize("name", ["x", "column", "rows", "offset"])
def test_a_forgotten_field_is_noticed(name, monkeypatch):
    monkeypatch.setattr(legality, "LOAD_SHAPE", tuple(field for field in legality.LOAD_SHAPE if field != name))
    cases = ((machine, changed(program, rng)) for machine, program, _, rng in programs(4, 100) for _ in range(12))
    assert any(answer(machine, other) != forgetful(machine, other, monkeypatch) for machine, other in cases)


class Recording:
    """A memory without an end that knows the largest address that was written."""

    largest = -1

    def __setitem__(self, place, data):
        self.largest = max(self.largest, place.stop - 1)


def last_byte(machine, program, index):
    """The largest address that a command touches."""
    memory = Recording()
    scalar = Scalar(machine, memory)
    for command in program.commands[: index + 1]:
        if command.op is Op.SET:
            scalar.set(command.values)
    if command.op is Op.LOAD:
        return scalar.last_byte(command.values)
    scalar.store(command.values)
    return memory.largest


def test_the_byte_that_is_named_is_the_last_one():
    """Of reads whole beats count."""
    named = {"reads": 0, "writes": 0}
    for machine, program, _, rng in programs(5, 120):
        for _ in range(8):
            other = changed(program, rng)
            for memory_bytes in (program.memory_bytes, int(rng.integers(program.memory_bytes))):
                object.__setattr__(other, "memory_bytes", memory_bytes)
                found = re.match(r"command (\d+) .* (reads|writes) byte (\d+);", answer(machine, other))
                if found:
                    named[found[2]] += 1
                    assert int(found[3]) == last_byte(machine, other, int(found[1]))
    assert min(named.values()) > 20


def test_a_wrong_last_byte_is_noticed(monkeypatch):
    monkeypatch.setattr(legality._Rows, "highest", lambda self, values, walker: values["base"] + self.last + 2 * self.width)
    with pytest.raises(AssertionError):
        test_the_byte_that_is_named_is_the_last_one()
