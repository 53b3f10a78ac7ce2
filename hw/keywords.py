"""Words that no generated identifier may be: the keywords of Verilog, SystemVerilog and C++."""

from __future__ import annotations

import re

from ..intrinsics import ParameterError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERILOG = _words(
    """
    always and assign automatic begin buf bufif0 bufif1 case casex casez cell cmos config deassign default defparam design disable
    edge else end endcase endconfig endfunction endgenerate endmodule endprimitive endspecify endtable endtask event for force
    forever fork function generate genvar highz0 highz1 if ifnone incdir include initial inout input instance integer join large
    liblist library localparam macromodule medium module nand negedge nmos nor noshowcancelled not notif0 notif1 or output
    parameter pmos posedge primitive pull0 pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent rcmos real realtime reg
    release repeat rnmos rpmos rtran rtranif0 rtranif1 scalared showcancelled signed small specify specparam strong0 strong1
    supply0 supply1 table task time tran tranif0 tranif1 tri tri0 tri1 triand trior trireg unsigned use uwire vectored wait wand
    weak0 weak1 while wire wor xnor xor
    """
)
"""IEEE 1364-2005."""

SYSTEMVERILOG = VERILOG | _words(
    """
    accept_on alias always_comb always_ff always_latch assert assume before bind bins binsof bit break byte chandle checker class
    clocking const constraint context continue cover covergroup coverpoint cross dist do endchecker endclass endclocking endgroup
    endinterface endpackage endprogram endproperty endsequence enum eventually expect export extends extern final first_match
    foreach forkjoin global iff ignore_bins illegal_bins implements implies import inside int interconnect interface intersect
    join_any join_none let local logic longint matches modport nettype new nexttime null package packed priority program property
    protected pure rand randc randcase randsequence ref reject_on restrict return s_always s_eventually s_nexttime s_until
    s_until_with sequence shortint shortreal soft solve static string strong struct super sync_accept_on sync_reject_on tagged
    this throughout timeprecision timeunit type typedef union unique unique0 until until_with untyped var virtual void wait_order
    weak wildcard with within
    """
)
"""IEEE 1800-2017."""

CPLUSPLUS = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await co_return
    co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
    virtual void volatile wchar_t while xor xor_eq
    """
)
"""ISO C++20, which includes the keywords of C that tools still honour."""

RESERVED = SYSTEMVERILOG | CPLUSPLUS

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_PREFIX = 64


def check_identifier(what: str, value: object) -> str:
    """``value`` as a name that Verilog, SystemVerilog, Verilator and C++ all take, or `ParameterError`."""
    legal = isinstance(value, str) and _IDENTIFIER.fullmatch(value) is not None and "__" not in value and len(value) <= MAX_PREFIX
    if not legal:
        nearest = re.sub("_+", "_", re.sub(r"\W", "_", str(value), flags=re.ASCII)).strip("_")[:MAX_PREFIX]
        nearest = nearest if nearest[:1].isalpha() else f"x_{nearest}".rstrip("_")
        raise ParameterError(
            f"{what} must be an identifier ([A-Za-z][A-Za-z0-9_]*, no double underscore, at most {MAX_PREFIX} characters), "
            f"not {value!r}; nearest legal value: {nearest}"
        )
    if value in RESERVED:
        raise ParameterError(f"{what} must not be a keyword of Verilog, SystemVerilog or C++, not {value!r}; nearest legal value: {value}_")
    return str(value)
