"""Sends, receives and async pairs within one module: who closes what, and in which order.

A send that no receive meets, as far as one program can tell; across programs `pairing` decides.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import NamedTuple

from rankmuster.formats.hlo.collective import Collective
from rankmuster.formats.hlo.definitions import Definitions
from rankmuster.formats.hlo.graph import Graph
from rankmuster.formats.hlo.module import Module
from rankmuster.formats.hlo.notes import Notes
from rankmuster.formats.hlo.scanner import shown
from rankmuster.program import POINT_TO_POINT, OpKind

_PIPELINED = re.compile(rb"_xla_send_recv_pipeline=")
_DONE_OPERAND = re.compile(rb"[a-z-]+\((?:[^()]*[\s)])?%?([^\s%(){}\[\],]+)\)")
# Through these a started op may come to its done from elsewhere (pipelined loops).
_CARRIES = frozenset(
    (b"get-tuple-element", b"parameter", b"copy", b"bitcast", b"opt-barrier", b"while", b"call")
)
_OTHER_END = {OpKind.SEND: OpKind.RECV, OpKind.RECV: OpKind.SEND}


class Done(NamedTuple):
    """Where the opcode of a done stands, and in which computation."""

    place: int
    position: int
    opcode: bytes


def check_done(module: Module, done: Done, starts: Container[bytes], notes: Notes) -> None:
    """A done must close a start of its kind (XLA verifier rule 11); RM701 where it does not.

    *starts* are the names of the collectives of the same computation.
    """
    place, position, opcode = done
    body = module.computation(place)
    match = _DONE_OPERAND.match(module.text, position, body.end)
    if match is None or match[1] in starts:
        return
    found = Definitions(module.text).instruction(body, match[1], position)
    if found is None or found.opcode in _CARRIES or opcode in (b"send-done", b"recv-done"):
        return
    wanted = opcode.removesuffix(b"done") + b"start"
    if found.opcode not in (wanted, b"async-start", b"async-update"):
        notes.add(
            "RM701",
            f"a {opcode.decode()} closes {shown(match[1])!r}, which is a {found.opcode.decode()} "
            f"and no {wanted.decode()}",
        )


def check_consumers(graph: Graph, found: Iterable[Collective], notes: Notes) -> None:
    """A send or receive has one consumer, its done (rule 12); RM206 where it has several."""
    wanted = {graph.at(c.start): c for c in found if c.form.kind in POINT_TO_POINT}
    counts = dict.fromkeys(wanted, 0)
    for place, needs in enumerate(graph.needs):
        for need in needs[: graph.operands[place]]:
            if need in counts:
                counts[need] += 1
    for place, count in counts.items():
        if count > 1:
            c = wanted[place]
            notes.add(
                "RM206",
                f"{c.form.kind} {c.label} has {count} consumers: one {c.form.kind}-done closes it",
                at=c.start,
            )


def check_schedule(found: Iterable[Collective], notes: Notes) -> None:
    """In a schedule each send meets its receive before any other collective (rule 14).

    Receives and sends on one set of pairs take turns; what stands between them, or is left open,
    waits for ever. Pipelined ones meet in another iteration and are skipped.
    """
    opened: Collective | None = None
    for c in found:
        if c.form.kind in POINT_TO_POINT:
            if c.form.pairs is None or _PIPELINED.search(
                c.form.attributes.get(b"frontend_attributes", b"")
            ):
                continue
            if problem := _impossible(c):
                notes.add("RM206", f"{c.form.kind} {c.label}: {problem}", at=c.start)
            elif opened is None:
                opened = c
                continue
            elif c.form.kind is _OTHER_END[opened.form.kind] and sorted(c.form.pairs) == sorted(
                opened.form.pairs or ()
            ):
                opened = None
                continue
        if opened is not None:
            wanted = _OTHER_END[opened.form.kind]
            notes.add(
                "RM206",
                f"{opened.form.kind} {opened.label} has not met its {wanted} when "
                f"{c.form.base.decode()} {c.label} begins",
                at=opened.start,
            )
            opened = None
    if opened is not None:
        wanted = _OTHER_END[opened.form.kind]
        notes.add("RM206", f"{opened.form.kind} {opened.label} meets no {wanted}", at=opened.start)


def _impossible(c: Collective) -> str:
    """Why these pairs alone cannot complete, or ""."""
    targets = dict(c.form.pairs or ())
    if len(set(c.form.pairs or ())) != len(c.form.pairs or ()):
        return "a pair stands twice"
    settled: set[int] = set()
    for start in targets:
        walked: set[int] = set()
        at = start
        while at in targets and at not in settled:
            if at in walked:
                return f"its pairs form a circle through {at}"
            walked.add(at)
            at = targets[at]
        settled |= walked
    return ""
