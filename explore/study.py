"""A study: what to explore, as a user writes it in TOML."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..hw import FAMILIES, Option, options
from ..intrinsics import CelosiaError, FormatError
from .candidate import digest
from .domains import Domain, closest, parse_domain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OBJECTIVES = {
    "cycles": "cycles of all operators, each times its weight (exact model)",
    "area_transistors": "transistors (estimate from per-element synthesis figures; of an accelerator also 6 per bit of its memories)",
    "multipliers": "multipliers",
    "stream_bits": "bits of operands that a block takes per cycle",
    "bytes_packed": "bytes that pack and unpack blocks write on the host, over all operators",
    "memory_kib": "KiB of an accelerator's memories",
    "port_bytes": "bytes per cycle of an accelerator's memory port",
}
"""What can be minimised."""

ACCELERATOR = "accelerator"
BLOCKS_ONLY = ("stream_bits", "bytes_packed")
ACCELERATORS_ONLY = ("memory_kib", "port_bytes")
"""Objectives of one kind of study."""

SCHEDULES = {"balanced": 400, "best": 200, "search": 2000}
"""Where the schedules of an accelerator come from, with the default budget: an exhaustive search costs more than a proposal."""

EXPLORED = (*FAMILIES, ACCELERATOR)
"""Families that a study may name."""

KEYS = ("name", "seed", "budget", "objectives", "front_limit", "limits", "hardware", "workload", "search", ACCELERATOR)
MAX_BUDGET = 10_000_000
DEFAULT_BUDGET = 2000


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One family with a domain per parameter.

    Parameters
    ----------
    label : str
        Name of its table in the study.
    family : str
    domains : mapping from parameter name to Domain
    """

    label: str
    family: str
    domains: Mapping[str, Domain]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What runs: names of workloads, operator strings or workload files, with a weight for each of them.

    Parameters
    ----------
    operators : tuple of (text, weight)
    a, b, out : str or None
        Element types; None keeps those of the operator (int8 x int8 -> int32).
    """

    operators: tuple[tuple[str, int], ...]
    a: str | None = None
    b: str | None = None
    out: str | None = None

    def resolve(self) -> list[Any]:
        """The `Operator` records; equal ones are merged and their weights added."""
        from ..compiler.operators import parse
        from ..compiler.workloads import workload

        merged: dict[str, Any] = {}
        for text, weight in self.operators:
            for operator in [parse(text)] if ":" in text and not text.endswith(".toml") else workload(text):
                typed = operator.typed(a=self.a, b=self.b, out=self.out)
                total = operator.weight * weight + (merged[typed.name].weight if typed.name in merged else 0)
                merged[typed.name] = typed.weighted(total)
        return list(merged.values())


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How the search proceeds.

    Parameters
    ----------
    optimizer : str
        Name in Nevergrad's registry.
    window : int, >= 1
        Proposals in flight: proposal i is asked for after the results up to i - window were told, in order. So the
        search is the same with any number of workers.
    warm_start : bool
        Begin with the corners and the middle of every family's domain under every loop order.
    refine : float, 0..1
        Share of the budget, at the end, in which neighbours and recombinations of front members are proposed.
    """

    optimizer: str = "TwoPointsDE"
    window: int = 8
    warm_start: bool = True
    refine: float = 0.4


@dataclass(frozen=True, kw_only=True)
class AcceleratorOptions:
    """What only a study of accelerators has.

    Parameters
    ----------
    schedules : key of `SCHEDULES`
        ``balanced``: every design takes the schedules that `balanced_schedule` finds; ``best``: those of `best_schedule`, the
        optimum of all tile sizes. ``search``: schedules are variables beside those of the hardware.
    audit_sample : int, >= 0
        Evaluated candidates, not on the front, that are run on RTL with the front, all operators.
    memory_latency : int, >= 1
        Cycles from a read request to its data.
    output : "sums", "int8" or "uint8"
        What operators write: 32-bit sums, or 8-bit numbers with bias and scale, which need ``channel_words``.
    """

    schedules: str = "balanced"
    audit_sample: int = 4
    memory_latency: int = 20
    output: str = "sums"


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that determines a result.

    Parameters
    ----------
    name : str
    seed : int, >= 0
    budget : int, >= 1
        Proposals of the search (a repeated candidate counts, but is not evaluated again).
    objectives : tuple of keys of `OBJECTIVES`
    front_limit : int, >= 1
        Members of the front that are verified and reported at most; those with the best of each objective are kept.
    hardware : tuple of Hardware
    workload : Workload
    limits : tuple of (key of `OBJECTIVES`, number)
        A candidate with a larger value is infeasible.
    search : SearchOptions
    accelerator : AcceleratorOptions
        Without effect in a study of blocks.
    """

    name: str
    hardware: tuple[Hardware, ...]
    workload: Workload
    seed: int = 0
    budget: int = 2000
    objectives: tuple[str, ...] = ("cycles", "area_transistors")
    front_limit: int = 12
    limits: tuple[tuple[str, float], ...] = ()
    search: SearchOptions = field(default_factory=SearchOptions)
    accelerator: AcceleratorOptions = field(default_factory=AcceleratorOptions)

    @property
    def of_accelerators(self) -> bool:
        """Whether the hardware is accelerators with memory; then no table is anything else."""
        return any(hardware.family == ACCELERATOR for hardware in self.hardware)

    @functools.cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits over everything above."""
        return digest(self.to_dict())[:12]

    def to_dict(self) -> dict[str, Any]:
        """Plain data in the form that `from_dict` reads."""
        hardware = {
            each.label: {"family": each.family, **{name: domain.to_plain() for name, domain in each.domains.items()}}
            for each in self.hardware
        }
        types = {key: getattr(self.workload, key) for key in ("a", "b", "out") if getattr(self.workload, key) is not None}
        entries = [{"operator": text, "weight": weight} for text, weight in self.workload.operators]
        return {
            "name": self.name,
            "seed": self.seed,
            "budget": self.budget,
            "objectives": list(self.objectives),
            "front_limit": self.front_limit,
            **({"limits": dict(self.limits)} if self.limits else {}),
            "hardware": hardware,
            "workload": {"operators": entries, **types},
            "search": dict(self.search.__dict__),
            **({ACCELERATOR: dict(self.accelerator.__dict__)} if self.of_accelerators else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Study:
        """Check plain data and make a study of it.

        Raises
        ------
        FormatError
            Names the field, what is allowed and the nearest legal key or value.
        """
        table = _Table("study", data, KEYS)
        hardware = _hardware(table)
        accelerators = any(each.family == ACCELERATOR for each in hardware)
        own = _accelerator(table, accelerators)
        proposals = SCHEDULES[own.schedules] if accelerators else DEFAULT_BUDGET
        allowed = tuple(name for name in OBJECTIVES if name not in (BLOCKS_ONLY if accelerators else ACCELERATORS_ONLY))
        return cls(
            name=_name(table),
            seed=table.integer("seed", 0, 2**32 - 1, default=0),
            budget=table.integer("budget", 1, MAX_BUDGET, default=proposals),
            objectives=_objectives(table, allowed),
            front_limit=table.integer("front_limit", 1, 1000, default=12),
            limits=_limits(table, allowed),
            hardware=hardware,
            workload=_workload(table, accelerators),
            search=_search(table),
            accelerator=own,
        )

    @classmethod
    def load(cls, path: Path | str, *, budget: int | None = None, seed: int | None = None) -> Study:
        """Read a study file; ``budget`` and ``seed`` replace what it says.

        Raises
        ------
        FormatError
            If the file cannot be read, is not TOML, or holds something else than a study.
        """
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # editors put a byte order mark first
        except OSError as error:
            raise FormatError(f"study {str(path)!r} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:  # also of bytes that are no text, and of integers of thousands of digits
            raise FormatError(f"study {str(path)!r} is not TOML: {error}") from None
        changes = {key: value for key, value in (("budget", budget), ("seed", seed)) if value is not None}
        return cls.from_dict(_resolved({"name": Path(path).stem, **data, **changes}, Path(path).parent))


class _Table:
    """A table of the study: reads checked values and knows its place for messages."""

    def __init__(self, place: str, data: Any, allowed: Sequence[str]) -> None:
        if not isinstance(data, Mapping):
            raise FormatError(f"{place} must be a table, not {data!r}")
        for key in data:
            if key not in allowed:
                raise FormatError(f"{place} has no key {key!r}; allowed: {', '.join(allowed)}{closest(key, allowed)}")
        self.place, self.data = place, data

    def path(self, key: str) -> str:
        return f"{self.place}.{key}"

    def required(self, key: str) -> Any:
        if key not in self.data:
            raise FormatError(f"{self.path(key)} is missing")
        return self.data[key]

    def text(self, key: str) -> str:
        value = self.required(key)
        if not isinstance(value, str) or not value.strip():
            raise FormatError(f"{self.path(key)} must be a non-empty string, not {value!r}")
        return value

    def integer(self, key: str, low: int, high: int, *, default: int) -> int:
        value = self.data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
            near = round(min(max(value, low), high)) if number else default
            raise FormatError(f"{self.path(key)} must be an integer from {low} to {high}, not {value!r}; nearest legal value: {near}")
        return value

    def fraction(self, key: str, default: float) -> float:
        value = self.data.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
            near = min(max(value, 0), 1) if number else default
            raise FormatError(f"{self.path(key)} must be a number from 0 to 1, not {value!r}; nearest legal value: {near}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:  # a default, not a switch
        value = self.data.get(key, default)
        if not isinstance(value, bool):
            raise FormatError(f"{self.path(key)} must be true or false, not {value!r}")
        return value


def _name(table: _Table) -> str:
    """The study's name, which is also that of its folder."""
    name = table.text("name")
    if name in (".", "..") or not name.isprintable() or any(mark in name for mark in "/\\"):
        near = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "study"
        raise FormatError(
            f"{table.path('name')} must be the name of a folder, without path separators and control characters, not {name!r}; "
            f"nearest legal value: {near!r}"
        )
    return name


def _objectives(table: _Table, allowed: Sequence[str]) -> tuple[str, ...]:
    value = table.data.get("objectives", ["cycles", "area_transistors"])
    if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
        raise FormatError(f"{table.path('objectives')} must be a list of distinct names out of {', '.join(allowed)}, not {value!r}")
    for index, name in enumerate(value):
        if not isinstance(name, str) or name not in allowed:
            raise FormatError(f"study.objectives[{index}] must be one of {', '.join(allowed)}, not {name!r}{closest(name, allowed)}")
    return tuple(value)


def _limits(table: _Table, allowed: Sequence[str]) -> tuple[tuple[str, float], ...]:
    inner = _Table("study.limits", table.data.get("limits", {}), allowed)
    for name, value in inner.data.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= sys.float_info.max:
            raise FormatError(f"{inner.path(name)} must be a finite number above 0, not {value!r}; without the key there is no limit")
    return tuple(inner.data.items())


def _hardware(table: _Table) -> tuple[Hardware, ...]:
    data = table.required("hardware")
    if not isinstance(data, Mapping) or not data:
        raise FormatError(f"study.hardware must hold one table per family, such as [hardware.systolic]; families: {', '.join(EXPLORED)}")
    found = tuple(_family(label, entry) for label, entry in data.items())
    others = [each.label for each in found if each.family != ACCELERATOR]
    if others and len(others) < len(found):
        raise FormatError(
            f"study.hardware.{others[0]} is a block without memory: its cycles do not compare with an accelerator's; make two studies"
        )
    return found


def _family(label: str, data: Any) -> Hardware:
    place = f"study.hardware.{label}"
    if not isinstance(data, Mapping):
        raise FormatError(f"{place} must be a table, not {data!r}")
    family = data.get("family", label)
    if not isinstance(family, str) or family not in EXPLORED:
        hint = "" if "family" in data else f" or have the key family = one of {', '.join(EXPLORED)}"
        what = f"{place}.family" if "family" in data else place
        allowed = "must be one of" if "family" in data else "must be named one of"
        raise FormatError(f"{what} {allowed} {', '.join(EXPLORED)}{hint}, not {family!r}{closest(family, EXPLORED)}")
    known = {option.name: option for option in options(family)}
    table = _Table(place, data, ("family", *known))
    missing = [name for name, option in known.items() if option.required and name not in data]
    if missing:
        raise FormatError(f"{place} needs {' and '.join(missing)}")
    domains = {name: _domain(table.path(name), value, known[name]) for name, value in data.items() if name != "family"}
    return Hardware(label=label, family=family, domains=domains)


def _domain(place: str, value: Any, option: Option) -> Domain:
    return parse_domain(place, value, kind=option.kind, low=option.low, high=option.high, choices=option.choices)


def _workload(table: _Table, accelerators: bool) -> Workload:
    data = table.required("workload")
    inner = _Table("study.workload", data, ("operators", "a", "b", "out"))
    typed = next((key for key in ("a", "b", "out") if accelerators and key in inner.data), None)
    if typed is not None:
        where = "of an accelerator are the types, and study.accelerator.output says what it writes"
        raise FormatError(f"study.workload.{typed} must be absent: the parameters a and b {where}")
    entries = inner.required("operators")
    if isinstance(entries, str):
        entries = [entries]
    if not isinstance(entries, list) or not entries:
        raise FormatError(f"study.workload.operators must be a list of workload names, operator strings or files, not {entries!r}")
    types = {key: _checked(f"study.workload.{key}", _dtype_name, data[key]) for key in ("a", "b", "out") if key in data}
    return Workload(operators=tuple(_entry(f"study.workload.operators[{index}]", entry) for index, entry in enumerate(entries)), **types)


def _entry(place: str, entry: Any) -> tuple[str, int]:
    if isinstance(entry, str):
        entry = {"operator": entry}
    if not isinstance(entry, Mapping):
        raise FormatError(f"{place} must be a workload's name, an operator string, a file or {{operator, weight}}, not {entry!r}")
    table = _Table(place, entry, ("operator", "weight"))
    text, weight = table.text("operator"), table.integer("weight", 1, 10**6, default=1)
    if ":" in text and not text.endswith(".toml"):
        from ..compiler.operators import parse

        _checked(place, parse, text)
    return text, weight


def _dtype_name(value: Any) -> str:
    from ..intrinsics import DType

    return DType.of(value).name


def _checked(place: str, check: Callable[[Any], Any], value: Any) -> Any:
    """``check(value)``, with the place before the message of its error."""
    try:
        return check(value)
    except CelosiaError as error:
        raise FormatError(f"{place}: {error}") from None


def _search(table: _Table) -> SearchOptions:
    given = SearchOptions()
    inner = _Table("study.search", table.data.get("search", {}), tuple(SearchOptions.__dataclass_fields__))
    return SearchOptions(
        optimizer=_optimizer(inner.data.get("optimizer", given.optimizer)),
        window=inner.integer("window", 1, 1024, default=given.window),
        warm_start=inner.flag("warm_start", given.warm_start),
        refine=inner.fraction("refine", given.refine),
    )


def _accelerator(table: _Table, accelerators: bool) -> AcceleratorOptions:
    given, place = AcceleratorOptions(), f"study.{ACCELERATOR}"
    if ACCELERATOR in table.data and not accelerators:
        raise FormatError(f"{place} must be absent: no table of study.hardware is of family {ACCELERATOR}")
    if not accelerators:
        return given
    from ..compiler.accelerator.job import OUTPUTS  # only now, as it loads all of the accelerator's compiler

    inner = _Table(place, table.data.get(ACCELERATOR, {}), tuple(AcceleratorOptions.__dataclass_fields__))
    chosen: dict[str, str] = {}
    for key, allowed in (("schedules", tuple(SCHEDULES)), ("output", OUTPUTS)):
        value = inner.data.get(key, getattr(given, key))
        if not isinstance(value, str) or value not in allowed:
            raise FormatError(f"{place}.{key} must be one of {', '.join(allowed)}, not {value!r}{closest(value, allowed)}")
        chosen[key] = value
    return AcceleratorOptions(
        **chosen,
        audit_sample=inner.integer("audit_sample", 0, 1000, default=given.audit_sample),
        memory_latency=inner.integer("memory_latency", 1, 10_000, default=given.memory_latency),
    )


def _optimizer(name: Any) -> str:
    if name == SearchOptions.optimizer:
        return str(name)  # the default needs no import of Nevergrad
    from .nevergrad_space import optimizer_names

    names = optimizer_names()
    if not isinstance(name, str) or name not in names:
        raise FormatError(
            f"study.search.optimizer must be one of Nevergrad's, such as {SearchOptions.optimizer}, not {name!r}{closest(name, names)}"
        )
    return name


def _resolved(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The study with workload files relative to its own folder, so that it can be run from anywhere."""
    workload = data.get("workload")
    if not isinstance(workload, dict) or not isinstance(workload.get("operators"), list):
        return data

    def place(text: Any) -> Any:
        return str(folder / text) if isinstance(text, str) and text.endswith(".toml") and not Path(text).is_absolute() else text

    entries = [
        {**entry, "operator": place(entry.get("operator"))} if isinstance(entry, dict) else place(entry) for entry in workload["operators"]
    ]
    return {**data, "workload": {**workload, "operators": entries}}
