"""Why the answer is no: what the closing round carries, bounded, and what is behind it.

A cause names the process at fault where its reporter saw it itself. It knows no frames' heads and
no trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rankmuster.errors import InvariantError, RemoteProtocolError
from rankmuster.protocol.odd import Signed, odd_ones

MESSAGE_CHARS = 500
NAME_CHARS = 40
SIGNED = 64
HEAD_BYTES = 100  # of the frame and of the list, beside the causes
LOST = "RM602"
SILENT = "RM603"
UNREACHABLE = "RM608"


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason for a no: a finding's `code` (or "" for one without), what, in which phase.

    `process` is the number of the process at fault, None where the reporter cannot tell;
    *hearsay* is a no that the reporter only passes on. `still_s` is how long the reporter itself
    stood still, for whatever reason, if it did. Where signatures differ, `signed` holds
    all those that the reporter saw on both sides, in all groups, or nothing if they are too many.
    """

    message: str
    code: str = ""
    phase: str = ""
    process: int | None = None
    fix: str = ""
    hearsay: bool = False
    still_s: float = 0.0
    signed: tuple[Signed, ...] = ()

    def cut(self) -> Cause:
        """The same cause with its texts within the bound of a frame."""
        return msgspec.structs.replace(
            self,
            message=_cut(self.message, MESSAGE_CHARS),
            fix=_cut(self.fix, MESSAGE_CHARS),
            code=_cut(self.code, NAME_CHARS),
            phase=_cut(self.phase, NAME_CHARS),
            signed=self.signed if len(self.signed) <= SIGNED else (),
        )


class Causes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What follows the head of a no: causes, and how many more there were no bytes for."""

    causes: tuple[Cause, ...]
    omitted: int = 0


def encode(causes: Iterable[Cause], at_most: int) -> bytes:
    """Pack as many of *causes* as fit, the first ones first, and count the rest.

    There is always at least one: a single cut cause fits every bound in use.
    """
    kept: list[Cause] = []
    omitted, room = 0, at_most - HEAD_BYTES
    for cause in causes:
        short = cause.cut()
        room -= len(msgspec.json.encode(short)) + 1
        if room < 0:
            omitted += 1
        else:
            kept.append(short)
    if not kept:
        raise InvariantError(f"not one cause fits {at_most} bytes")
    return msgspec.json.encode(Causes(causes=tuple(kept), omitted=omitted))


def decode(body: bytes) -> Causes:
    """Unpack what `encode` made; raises `RemoteProtocolError` for anything else."""
    try:
        causes = msgspec.json.decode(body, type=Causes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a closing frame's causes cannot be read: {error}") from error
    if not causes.causes or causes.omitted < 0:
        raise RemoteProtocolError("a closing frame says no without a cause")
    return causes


def root_causes(reports: Mapping[int, Cause]) -> tuple[Cause, ...]:
    """What is behind the *reports*, each by the process that made it: each fault once.

    A process that waited in vain is not itself at fault: where 3 blames 7 for silence and 7 blames
    15, only 15 is named. Nor is one that passes a no on, or was ready in the end. Where that leaves
    nobody, whoever stood still the longest is: others gave it up before it woke, and it cannot tell
    who was silent meanwhile. Hearsay stays where nothing else is known.
    """
    first_hand = [cause for cause in reports.values() if not cause.hearsay]
    waited = {who for who, cause in reports.items() if _is_silence_of_another(cause, who)}
    passed_on = {who for who, cause in reports.items() if cause.hearsay}
    awake = [cause for cause in first_hand if not (cause.still_s and cause.code == SILENT)]
    unready = [cause for cause in awake if cause.process is None or cause.process in reports]
    named = (
        _without_silence_of(waited | passed_on, unready)
        or _longest_still(reports)
        or _without_silence_of(waited | passed_on, first_hand)
        or _without_silence_of(waited, first_hand)
        or first_hand
    )
    distinct: dict[tuple[str, int | str], Cause] = {}
    for cause in _with_odd_ones(named) or reports.values():
        about = cause.message if cause.process is None else cause.process
        distinct.setdefault((cause.code, about), cause)
    return tuple(distinct.values())


def _with_odd_ones(causes: Sequence[Cause]) -> Sequence[Cause]:
    """The same, with whoever holds an odd signature named.

    Only where signatures are all that is wrong: who was lost, or saw too much, saw what is missing.
    """
    if not all(cause.signed for cause in causes):
        return causes
    seen = {signed: cause for cause in causes for signed in cause.signed}
    odd = [
        Cause(
            message=f"process {each.process} holds signature {each.signature} in a group of "
            f"{each.size}, most of which hold {usual}",
            code=seen[each].code,
            phase=seen[each].phase,
            process=each.process,
        )
        for each, usual in odd_ones(seen)
    ]
    who = {named.process for named in odd}
    return [*odd, *(c for c in causes if who.isdisjoint(s.process for s in c.signed))]


def _longest_still(reports: Mapping[int, Cause]) -> list[Cause]:
    """The process that stood still the longest, if any did."""
    who, cause = max(reports.items(), key=lambda report: report[1].still_s, default=(0, None))
    if cause is None or not cause.still_s:
        return []
    message = f"process {who} stood still for {cause.still_s:.1f} s while others waited for it"
    return [Cause(message=message, code=SILENT, phase=cause.phase, process=who)]


def _is_silence_of_another(cause: Cause, who: int) -> bool:
    # Who could not reach another was silent to it, and through no fault of its own.
    return cause.code in {SILENT, UNREACHABLE} and cause.process not in {None, who}


def _without_silence_of(innocent: set[int], causes: Iterable[Cause]) -> list[Cause]:
    return [c for c in causes if not (c.code == SILENT and c.process in innocent)]


def _cut(text: str, chars: int) -> str:
    """At most *chars* of *text*; what UTF-8 cannot carry (a surrogate of a file name) becomes ?."""
    clean = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= chars else clean[: chars - 3] + "..."
