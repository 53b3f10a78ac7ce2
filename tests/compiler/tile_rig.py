"""Machines to lower tile calls for, their runs, and recorders that write down wrong calls."""

from celosia.compiler.accelerator import recording
from celosia.hw import DesignPoint
from celosia.hw.accelerator.machine import machine_of
from celosia.intrinsics.accelerator.functional import execute


def make(**parameters):
    return machine_of(
        DesignPoint.create("accelerator", **{"rows": 4, "cols": 4, "spad_kib": 4, "acc_kib": 4, "port_bytes": 8, **parameters})
    )


MACHINE = make()


def run(lowered, inputs, machine=MACHINE):
    return lowered.run(inputs, lambda program, memory: execute(machine, program, memory))


def broken_recorder(monkeypatch, change):
    """A recorder whose table of calls is changed before it is read."""
    right = recording._Recorder.calls

    def calls(self):
        change(self.rows)
        return right(self)

    monkeypatch.setattr(recording._Recorder, "calls", calls)
