"""Which computations hold collectives, directly or through what they call, and who calls them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rankmuster.errors import InvalidProgram, did_you_mean
from rankmuster.formats.hlo.cones import CALLED, callees
from rankmuster.formats.hlo.instruction import Instruction, instruction_at
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.printed import Cutter
from rankmuster.formats.hlo.scanner import attributes, malformed, shown
from rankmuster.formats.hlo.sites import CALLS, COLLECTIVES, OPCODES, behind

_MAX_NESTING = 64
_IN_ORDER = (b"condition", b"body", b"true_computation", b"false_computation")
# backend_config={"known_trip_count":{"n":"7"},...}
_TRIPS = re.compile(rb'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d{1,18})"?')
# %while.5 = (s32[], f32[4]) while(%tuple.1), condition=%cond.3, body=%body.2, metadata={...}
# relu.3 = f32[4,16]{1,0} call(dot.1), to_apply=relu.1
_NAME = rb'%?([^\s%=(){}\[\],"/]++)'
_CALLEES = re.compile(
    rb", (?:condition=" + _NAME + rb", body=" + _NAME + rb"|to_apply=" + _NAME + rb")(?=[,\s]|\Z)"
)
# calls=%fused_computation.7   called_computations={%a, %b}
_NAMES = re.compile(rb"\{?\s*%?[^\s,{}()]+(?:\s*,\s*%[^\s,{}()]+)*")
_BEGINNING = 12
_BEGINS = re.compile(rb"%%([^\s,{}()]{1,%d}+)" % _BEGINNING)
_ONE_NAME = re.compile(rb"[^\s,{}%]+")


class CallText(NamedTuple):
    """One instruction that calls computations, as it names them.

    The names stand in the order in which the computations run, or in which a branch numbers them.
    `trips` is for a while loop, None where its count is not known.
    """

    start: int
    opcode: bytes
    caller: int
    names: Sequence[bytes]
    trips: int | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call, with its callees by their places in the module instead of their names."""

    start: int
    opcode: bytes
    caller: int
    callees: tuple[int, ...]
    trips: int | None = None


class CallReader:
    """Reads calls of one module."""

    def __init__(self, module: Module, cut: Cutter) -> None:
        self._module, self._cut = module, cut
        self._rest: dict[bytes, tuple[int | None] | None] = {}

    def read(self, site: int, opcode: bytes, caller: int, low: int) -> tuple[CallText | None, int]:
        """The call whose *opcode* stands at *site* in the body of *caller*, and where to go on.

        None where the site stands inside another instruction or a comment. *low* and where to go
        on are those of `instruction_at`.
        """
        text, high = self._module.text, self._module.ends[caller]
        found = self._cut(site, opcode, low, high)
        names = _CALLEES.match(found[5]) if found else None
        if found and names:
            condition, body, callee = names.groups()
            rest = found[5][names.end() :]
            if rest not in self._rest:
                self._rest[rest] = _known_rest(rest)
            trips = self._rest[rest]
            if trips and (opcode == b"while") == (callee is None):
                called = (callee,) if callee else (condition, body)
                return CallText(found[0], opcode, caller, called, trips[0]), found[1]
        instruction, after = instruction_at(text, site, low, high)
        if instruction is None or instruction.site != site:
            return None, after
        return _read_call(instruction, caller), after


def _known_rest(text: bytes) -> tuple[int | None] | None:
    """The trip count that the attributes behind the callees give; None if they are not plain."""
    try:
        found, stop = attributes(text, 0, len(text))
    except InvalidProgram:
        return None  # read again, to say where
    if stop != len(text) or b"//" in text or not CALLED.isdisjoint(found):
        return None
    return (_trips(found.get(b"backend_config")),)


def _read_call(instruction: Instruction, caller: int) -> CallText:
    names = callees(instruction)
    keys = [key for key in instruction.attributes if key in _IN_ORDER]
    if len(keys) == len(names):
        names = [name for _, name in sorted(zip(map(_IN_ORDER.index, keys), names, strict=True))]
    trips = _trips(instruction.attributes.get(b"backend_config"))
    return CallText(instruction.start, instruction.opcode, caller, names, trips)


def _trips(config: bytes | None) -> int | None:
    trips = _TRIPS.search(config) if config else None
    return int(trips[1]) if trips else None


def resolve(module: Module, calls: Iterable[CallText]) -> list[Call]:
    """*calls* with the places of their callees.

    Raises InvalidProgram where one names an undefined computation.
    """
    return [
        Call(
            start=call.start,
            opcode=call.opcode,
            caller=call.caller,
            callees=tuple([_place(module, call.start, name) for name in call.names]),
            trips=call.trips,
        )
        for call in calls
    ]


def _place(module: Module, position: int, name: bytes) -> int:
    place = module.names.place(name)
    if place is None:
        raise malformed(module.text, position, f"computation {shown(name)!r} is not defined")
    return place


def holding_calls(module: Module, direct: Iterable[int], calls: list[Call]) -> list[Call]:
    """The calls through which some collective is reached, found and given ones alike.

    *direct* are the places of computations with collectives of their own. Raises InvalidProgram
    where computations call each other in a circle or nest beyond any real program.
    """
    by_callee: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        for callee in call.callees:
            by_callee[callee].append(call)
    holders = set(direct)
    kept: dict[int, Call] = {}
    fresh = set(holders)
    for _ in range(_MAX_NESTING):
        while fresh:
            callee = fresh.pop()
            for call in by_callee[callee]:
                kept[call.start] = call
                if call.caller not in holders:
                    holders.add(call.caller)
                    fresh.add(call.caller)
        orphans = {
            module.computation(place).name
            for place in holders
            if not by_callee[place] and place != module.entry
        }
        found = [call for call in _search(module, orphans) if call.start not in kept]
        if not found:
            return sorted(kept.values(), key=lambda call: call.start)
        for call in found:
            for callee in call.callees:
                by_callee[callee].append(call)
                fresh.update({callee} & holders)
    raise malformed(module.text, 0, f"fused computations nest deeper than {_MAX_NESTING}")


def _search(module: Module, names: set[bytes]) -> list[Call]:
    found: dict[int, CallText] = {}
    text, low = module.text, 0
    beginnings = frozenset(name[:_BEGINNING] for name in names)
    for position in behind(text, CALLS) if names else ():
        # Thousands of fusions, few names: most differ in their first letters already.
        only = _BEGINS.match(text, position)
        if only is not None and only[1] not in beginnings:
            continue
        match = _NAMES.match(text, position)
        if match is None or names.isdisjoint(_ONE_NAME.findall(match[0])):
            continue
        caller = module.place_of(position)
        if caller is None:
            continue
        low = max(low, module.starts[caller])
        around, low = instruction_at(text, position, low, module.ends[caller])
        if around is not None:
            found[around.start] = _read_call(around, caller)
    return resolve(module, found.values())


def refuse_unknown(module: Module, position: int, low: int) -> int:
    """Raise InvalidProgram if the instruction at *position* has an opcode that nobody knows here.

    It carries an attribute of collectives, so to skip it could hide a difference. Returns where
    to go on, as `instruction_at` does.
    """
    place = module.place_of(position)
    if place is None:
        return position
    low = max(low, module.starts[place])
    found, after = instruction_at(module.text, position, low, module.ends[place])
    known = (*OPCODES, b"async-update", b"async-done")
    if found is not None and found.opcode not in known and _stands_outside_strings(found):
        opcode = shown(found.opcode)
        near = did_you_mean(opcode, [name.decode() for name in COLLECTIVES])
        raise malformed(module.text, found.site, f"unknown collective {opcode!r}", fix=near)
    return after


def _stands_outside_strings(instruction: Instruction) -> bool:
    return not {b"replica_groups", b"source_target_pairs"}.isdisjoint(instruction.attributes)


def callees_first(module: Module, calls: Iterable[Call]) -> list[int]:
    """The computations that ENTRY reaches through *calls*, each after all that it calls.

    Raises InvalidProgram for a computation that calls itself, however far around.
    """
    edges: dict[int, list[int]] = defaultdict(list)
    for call in calls:
        edges[call.caller].extend(call.callees)
    order: list[int] = []
    state: dict[int, int] = {}  # 1 while its callees are walked, 2 when done
    stack = [module.entry]
    while stack:
        place = stack.pop()
        if place < 0:
            state[~place] = 2
            order.append(~place)
        elif place not in state:
            state[place] = 1
            stack.append(~place)
            stack.extend(reversed(edges[place]))
        elif state[place] == 1:
            name = shown(module.computation(place).name)
            raise malformed(
                module.text, module.computation(place).start, f"computation {name!r} calls itself"
            )
    return order
