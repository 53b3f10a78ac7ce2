"""C driver of the memory-mapped command queue: register offsets and small inline functions."""

from __future__ import annotations

from collections.abc import Mapping

from ...intrinsics.accelerator.command import Field
from .register_map import ID, Mapped

_FUNCTIONS = """
/* A device is its registers; define both macros before to reach them in another way. */
#ifndef @M@_READ
#define @M@_READ(device, offset) ((device)[(offset) / 4])
#define @M@_WRITE(device, offset, value) ((void)((device)[(offset) / 4] = (value)))
#endif
typedef volatile uint32_t *@m@_device;

/* Put a field of at most 32 bits into a command that was all zero: @m@_put(command, @M@_LOAD_BASE_BIT, @M@_LOAD_BASE_WIDTH, base). */
static inline void @m@_put(uint32_t command[@M@_COMMAND_WORDS], unsigned bit, unsigned width, uint32_t value)
{
    uint64_t part = (uint64_t)(width < 32 ? value & ((1u << width) - 1) : value) << bit % 32;
    command[bit / 32] |= (uint32_t)part;
    if (bit % 32 + width > 32)
        command[bit / 32 + 1] |= (uint32_t)(part >> 32);
}

/* Whether the device is of the design that this header was made for. */
static inline int @m@_matches(@m@_device device)
{
    return @M@_READ(device, @M@_REG_ID) == @M@_ID && @M@_READ(device, @M@_REG_HASH_LOW) == @M@_HASH_LOW
        && @M@_READ(device, @M@_REG_HASH_HIGH) == @M@_HASH_HIGH;
}

/* Commands that can be pushed at once. */
static inline unsigned @m@_space(@m@_device device)
{
    return @M@_READ(device, @M@_REG_QUEUE) >> @M@_QUEUE_SPACE_BIT & ((1u << @M@_QUEUE_SPACE_WIDTH) - 1);
}

/* Push a command; 0 if the queue is full. */
static inline int @m@_push(@m@_device device, const uint32_t command[@M@_COMMAND_WORDS])
{
    unsigned word;
    if (!@m@_space(device))
        return 0;
    for (word = 0; word < @M@_COMMAND_WORDS; ++word)
        @M@_WRITE(device, @M@_REG_COMMAND_0 + 4 * word, command[word]);
    return 1;
}

/* Whether a program runs or commands wait. */
static inline int @m@_busy(@m@_device device)
{
    return @M@_READ(device, @M@_REG_STATUS) >> @M@_STATUS_BUSY_BIT & 1;
}

/* What happened since it was cleared: @M@_IRQ_* bits. */
static inline uint32_t @m@_happened(@m@_device device)
{
    return @M@_READ(device, @M@_REG_IRQ_STATUS);
}

/* Clear @M@_IRQ_* bits. */
static inline void @m@_clear(@m@_device device, uint32_t bits)
{
    @M@_WRITE(device, @M@_REG_IRQ_STATUS, bits);
}

/* Choose the @M@_IRQ_* bits that raise the interrupt line. */
static inline void @m@_interrupts(@m@_device device, uint32_t bits)
{
    @M@_WRITE(device, @M@_REG_IRQ_ENABLE, bits);
}
"""

_PLACE = """
/* Tell where the memory image is, while nothing runs: whole 4 KiB. */
static inline void @m@_place(@m@_device device, uint64_t base)
{
    @M@_WRITE(device, @M@_REG_BASE_LOW, (uint32_t)base);
    @M@_WRITE(device, @M@_REG_BASE_HIGH, (uint32_t)(base >> 32));
}
"""


def driver_lines(name: str, design_hash: str, registers: Mapping[str, Mapped]) -> list[str]:
    """Lines of a C header; needs ``<NAME>_COMMAND_WORDS``."""
    macro, number = name.upper(), int(design_hash, 16)
    lines = [f"#define {macro}_ID {ID:#x}u", f"#define {macro}_HASH_LOW {number & 0xFFFFFFFF:#x}u"]
    lines += [f"#define {macro}_HASH_HIGH {number >> 32:#x}u", ""]
    for register, mapped in registers.items():
        lines.append(f"#define {macro}_REG_{register} {mapped.offset:#04x} /* {mapped.access}: {mapped.help} */")
        lines += [line for field, place in mapped.fields.items() for line in field_lines(f"{macro}_{register}_{field.upper()}", place)]
    lines += ["", *(f"#define {macro}_IRQ_{bit.upper()} {1 << place.offset}u" for bit, place in registers["IRQ_STATUS"].fields.items())]
    body = _FUNCTIONS + (_PLACE if "BASE_LOW" in registers else "")
    return [*lines, *body.replace("@M@", macro).replace("@m@", name).rstrip("\n").split("\n")]


def field_lines(stem: str, place: Field) -> list[str]:
    """Lowest bit and width of a field as macros."""
    return [f"#define {stem}_BIT {place.offset}", f"#define {stem}_WIDTH {place.width}"]
