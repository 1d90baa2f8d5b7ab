"""Which computations hold collectives, directly or through what they call, and who calls them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rankmuster.formats.hlo.cones import callees
from rankmuster.formats.hlo.instruction import Instruction, instruction_at
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.scanner import attributes, malformed, shown
from rankmuster.formats.hlo.sites import OPCODES

_MAX_NESTING = 64
_IN_ORDER = (b"condition", b"body", b"true_computation", b"false_computation")
# backend_config={"known_trip_count":{"n":"7"},...}
_TRIPS = re.compile(rb'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"?(\d{1,18})"?')
# relu.3 = f32[4,16]{1,0} call(dot.1), to_apply=relu.1
_CALL_LINE = re.compile(
    rb'[ \t]*+(?:ROOT[ \t]++)?+%?[^\s%=(){}\[\],"]++ = [^\s"()]++ '
    rb'(call)\([^(){}"/\[\n]*+\), to_apply=%?([^\s%=(){}\[\],"]++)'
)
# calls=%fused_computation.7   called_computations={%a, %b}
_NAMES = re.compile(rb"\{?\s*%?[^\s,{}()]+(?:\s*,\s*%[^\s,{}()]+)*")
_BEGINNING = 12
_NAME = re.compile(rb"[^\s,{}%]+")


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction that calls computations, by their places in the module.

    The callees stand in the order in which they run, or in which a branch numbers them. `trips`
    is for a while loop, None where its count is not known.
    """

    start: int
    opcode: bytes
    caller: int
    callees: tuple[int, ...]
    trips: int | None = None


def call_at(
    module: Module, site: int, opcode: bytes, caller: int, low: int
) -> tuple[Call | None, int]:
    """The call whose *opcode* stands at *site*, and where to go on, as `instruction_at` says.

    None where the site stands inside another instruction or a comment. Raises InvalidProgram
    where it names an undefined computation.
    """
    text, high = module.text, module.ends[caller]
    if opcode == b"call":
        # The one common caller, mostly of computations without collectives: keep it cheap.
        line = text.rfind(b"\n", low, site) + 1 or low
        match = _CALL_LINE.match(text, line, high)
        if match and match.start(1) == site:
            _, end = attributes(text, match.end(), high)
            return Call(match.start(), opcode, caller, _places(module, line, [match[2]])), end
    found, after = instruction_at(text, site, low, high)
    if found is None or found.site != site:
        return None, after
    return read_call(module, found, caller), after


def read_call(module: Module, instruction: Instruction, caller: int) -> Call:
    """*instruction* as a call. Raises InvalidProgram where it names an undefined computation."""
    names = callees(instruction)
    keys = [key for key in instruction.attributes if key in _IN_ORDER]
    if len(keys) == len(names):
        names = [name for _, name in sorted(zip(map(_IN_ORDER.index, keys), names, strict=True))]
    trips = _TRIPS.search(instruction.attributes.get(b"backend_config", b""))
    return Call(
        start=instruction.start,
        opcode=instruction.opcode,
        caller=caller,
        callees=_places(module, instruction.start, names),
        trips=int(trips[1]) if trips else None,
    )


def _places(module: Module, position: int, names: list[bytes]) -> tuple[int, ...]:
    places = []
    for name in names:
        if name not in module.by_name:
            raise malformed(module.text, position, f"computation {shown(name)!r} is not defined")
        places.append(module.by_name[name])
    return tuple(places)


def holding_calls(
    module: Module, direct: Iterable[int], calls: list[Call], called: Sequence[int]
) -> list[Call]:
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
        found = [call for call in _search(module, orphans, called) if call.start not in kept]
        if not found:
            return sorted(kept.values(), key=lambda call: call.start)
        for call in found:
            for callee in call.callees:
                by_callee[callee].append(call)
                fresh.update({callee} & holders)
    raise malformed(module.text, 0, f"fused computations nest deeper than {_MAX_NESTING}")


def _search(module: Module, names: set[bytes], called: Sequence[int]) -> list[Call]:
    found: dict[int, Call] = {}
    text, low = module.text, 0
    beginnings = frozenset(name[:_BEGINNING] for name in names)
    for position in called if names else ():
        # Thousands of fusions, few names: most differ in their first letters already.
        word = text[position : position + 1 + _BEGINNING]
        if (
            word[:1] == b"%"
            and word[1:] not in beginnings
            and len(word.split(b",")[0]) > _BEGINNING
        ):
            continue
        match = _NAMES.match(text, position)
        if match is None or names.isdisjoint(_NAME.findall(match[0])):
            continue
        caller = module.place_of(position)
        if caller is None:
            continue
        low = max(low, module.starts[caller])
        around, low = instruction_at(text, position, low, module.ends[caller])
        if around is not None:
            found[around.start] = read_call(module, around, caller)
    return list(found.values())


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
        raise malformed(module.text, found.site, f"unknown collective {shown(found.opcode)!r}")
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
