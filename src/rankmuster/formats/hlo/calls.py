"""Which computations hold collectives, directly or through what they call, and who calls them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rankmuster.formats.hlo.cones import callees
from rankmuster.formats.hlo.instruction import Instruction, instruction_around
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.scanner import malformed, shown
from rankmuster.formats.hlo.sites import find_all

_MAX_NESTING = 64
# Fusions and custom calls are too many to be sites: they are looked at only where a computation
# that holds collectives has no caller among the sites.
_OTHER_CALLS = (b"calls=", b"to_apply=", b"called_computations=")
_NAMES = re.compile(rb"\{?\s*%?[^\s,{}()]+(?:\s*,\s*%[^\s,{}()]+)*")
_NAME = re.compile(rb"[^\s,{}%]+")


@dataclass(frozen=True, slots=True)
class Call:
    """One instruction that calls computations, by their places in the module."""

    instruction: Instruction
    caller: int
    callees: tuple[int, ...]


def read_call(module: Module, instruction: Instruction, caller: int) -> Call:
    """*instruction* as a call. Raises InvalidProgram where it names an undefined computation."""
    places = []
    for name in callees(instruction):
        if name not in module.by_name:
            raise malformed(
                module.text, instruction.start, f"computation {shown(name)!r} is not defined"
            )
        places.append(module.by_name[name])
    return Call(instruction, caller, tuple(places))


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
                kept[call.instruction.start] = call
                if call.caller not in holders:
                    holders.add(call.caller)
                    fresh.add(call.caller)
        orphans = {
            module.computations[place].name
            for place in holders
            if not by_callee[place] and not module.computations[place].entry
        }
        found = [call for call in _search(module, orphans) if call.instruction.start not in kept]
        if not found:
            return sorted(kept.values(), key=lambda call: call.instruction.start)
        for call in found:
            for callee in call.callees:
                by_callee[callee].append(call)
                fresh.update({callee} & holders)
    raise malformed(module.text, 0, f"fused computations nest deeper than {_MAX_NESTING}")


def _search(module: Module, names: set[bytes]) -> list[Call]:
    found: dict[int, Call] = {}
    for needle in _OTHER_CALLS if names else ():
        for position in find_all(module.text, needle):
            match = _NAMES.match(module.text, position + len(needle))
            if match is None or names.isdisjoint(_NAME.findall(match[0])):
                continue
            caller = module.place_of(position)
            if caller is None:
                continue
            body = module.computations[caller]
            around = instruction_around(module.text, position, body.start, body.end)
            if around is not None:
                found[around.start] = read_call(module, around, caller)
    return list(found.values())


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
            name = shown(module.computations[place].name)
            raise malformed(
                module.text, module.computations[place].start, f"computation {name!r} calls itself"
            )
    return order
