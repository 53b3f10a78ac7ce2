"""Registers of the memory-mapped command queue: offsets and fields, from which RTL, C header, description and driver come. No HDL here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...intrinsics.accelerator.command import COMMAND_BITS, Field

WORD_BYTES = 4
COMMAND_WORDS = COMMAND_BITS // 32
ID = int.from_bytes(b"CELO", "big")

IRQ = ("done", "illegal", "read_error", "write_error")
"""Bits of IRQ_STATUS and IRQ_ENABLE: END was accepted; an illegal command was dropped; memory answered a read, a write with an error."""


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """A 32-bit register.

    Parameters
    ----------
    offset : int
        Bytes.
    access : "read", "write", "read-write" or "clear"
        ``clear``: readable, and a written 1 clears its bit.
    help : str
    fields : mapping
        Empty if the register is one number.
    """

    offset: int
    access: str
    help: str
    fields: Mapping[str, Field] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        """Whether a read is answered."""
        return self.access != "write"

    @property
    def writable(self) -> bool:
        """Whether a write is answered."""
        return self.access != "read"


_BITS = {name: Field(bit, 1) for bit, name in enumerate(IRQ)}
_STATUS = {"busy": Field(0, 1), "done": Field(1, 1), "error": Field(2, 1), "waiting": Field(16, 9)}

_MAP = {
    "ID": Mapped(offset=0x00, access="read", help='the letters "CELO"'),
    "HASH_LOW": Mapped(offset=0x04, access="read", help="hash of the design, its last eight digits"),
    "HASH_HIGH": Mapped(offset=0x08, access="read", help="hash of the design, its first four digits"),
    "STATUS": Mapped(
        offset=0x0C,
        access="read",
        help="a program runs or commands wait; done and any error as in IRQ_STATUS; the awaited counters that hold back each queue",
        fields=_STATUS,
    ),
    "QUEUE": Mapped(
        offset=0x10,
        access="read",
        help="commands that may be pushed at once, and commands that wait to be dispatched",
        fields={"space": Field(0, 16), "level": Field(16, 16)},
    ),
    "IRQ_STATUS": Mapped(offset=0x14, access="clear", help="what happened since its bit was cleared", fields=_BITS),
    "IRQ_ENABLE": Mapped(offset=0x18, access="read-write", help="what raises the interrupt line", fields=_BITS),
    "PROGRAMS": Mapped(offset=0x1C, access="read", help="programs that ended since reset"),
    "CYCLES": Mapped(offset=0x20, access="read", help="cycles of the present or last program"),
    "BEATS": Mapped(offset=0x24, access="read", help="array beats of the present or last program"),
    "LOAD_WAITS": Mapped(offset=0x28, access="read", help="cycles in which the next compute waited for a load"),
    "LIMITS": Mapped(
        offset=0x30,
        access="read-write",
        help="lower queue depth and reads in flight, 0 as built; taken over while nothing runs",
        fields={"queue": Field(0, 8), "outstanding": Field(16, 9)},
    ),
    "BASE_LOW": Mapped(offset=0x38, access="read-write", help="address of the memory image, whole 4 KiB; taken over while nothing runs"),
    "BASE_HIGH": Mapped(offset=0x3C, access="read-write", help="its upper half"),
}
_COMMAND_OFFSET = 0x40


def register_map(*, base: bool) -> dict[str, Mapped]:
    """Registers of a design by name; ``base``: it is told where its memory image is."""
    found = {name: register for name, register in _MAP.items() if base or not name.startswith("BASE")}
    for word in range(COMMAND_WORDS):
        text = f"bits {32 * word} to {32 * word + 31} of a command" + (
            "; writing it pushes the command" if word == COMMAND_WORDS - 1 else ""
        )
        found[f"COMMAND_{word}"] = Mapped(offset=_COMMAND_OFFSET + WORD_BYTES * word, access="write", help=text)
    return found
