"""Both ends of every directed edge, held against each other: RM206, and RM208 where they cross."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rankmuster.copies import ProgramClass, ProgramCopy, classes
from rankmuster.finding import Finding, Severity, Value, finding
from rankmuster.pairing.ends import Ends, Messages, judge
from rankmuster.pairing.posts import Edge, Lane, Numbered, edges, posts, sequence
from rankmuster.pairing.splits import transposed
from rankmuster.pairing.strays import Stray, strays_told
from rankmuster.program import OpKind
from rankmuster.wording import who

MOST = 20
"""So many findings are told in full; of the rest, how many there are."""


def pair(copies: Iterable[ProgramCopy], world_size: int) -> tuple[Finding, ...]:
    """Pair the sends and receives, and the splits, of a world of *world_size* devices.

    Only where both ends have a copy: of an absent device nothing can be told.
    """
    held = classes(copies)
    return pair_classes([each for each in held if each.devices[:1] < (world_size,)])


def pair_classes(held: Sequence[ProgramClass]) -> tuple[Finding, ...]:
    """See `pair`; for those who have sorted the copies into classes already."""
    shared = [each for each in held if shares_peers(each)]
    apart = {device for each in shared for device in each.devices}
    found = [*map(one_peer_for_all, shared), *messages_told(held, apart), *transposed(held)]
    if len(found) <= MOST:
        return tuple(found)
    return (*found[:MOST], remaining(found[MOST:]))


def remaining(rest: Sequence[Finding]) -> Finding:
    """One finding that counts those not told."""
    is_error = any(each.severity is Severity.ERROR for each in rest)
    return finding(
        rest[0].code,
        f"{len(rest)} more like these are not told one by one",
        severity=Severity.ERROR if is_error else Severity.WARNING,
        ranks=(device for each in rest for device in each.ranks),
    )


def shares_peers(each: ProgramClass) -> bool:
    """Whether a copy names one peer for several devices, which cannot all mean it."""
    return any(len(copy.devices) > 1 for copy in each.copies) and any(
        post.op.peer is not None for post in posts(each.resolved)
    )


def one_peer_for_all(each: ProgramClass) -> Finding:
    """RM206 for a send or receive to one peer in a program of several devices."""
    post = next(post for post in posts(each.resolved) if post.op.peer is not None)
    return finding(
        "RM206",
        f"group {post.set_id}: {post.op.kind} with peer {post.op.peer} stands in a program of "
        f"{who(each.devices)}, and cannot mean the peer of each{post.where}",
        ranks=each.devices,
        group=post.set_id,
        op=post.ref,
        field="peer",
        values=(Value(ranks=each.devices, value=post.op.peer),),
        fix="give each device a program file of its own",
    )


def messages_told(held: Sequence[ProgramClass], apart: set[int]) -> Iterator[Finding]:
    """The findings of all edges between devices that have a copy; what many show is told once."""
    present = {device for each in held for device in each.devices} - apart
    strays: list[Stray] = []
    numbered = Numbered()
    for ends, alike in lots(held, present, numbered):
        found = judge(ends, alike, numbered)
        if isinstance(found, Stray):
            strays.append(found)
        elif found is not None:
            yield found
    runs = {device: each.resolved for each in held for device in each.devices}
    yield from strays_told(strays, runs)


def lots(
    held: Sequence[ProgramClass], present: set[int], numbered: Numbered
) -> Iterator[tuple[Ends, list[Edge]]]:
    """The edges in lots that are sent and received the very same sequences of messages."""
    sent = all_edges(held, present, OpKind.SEND, numbered)
    received = all_edges(held, present, OpKind.RECV, numbered)
    alike: dict[tuple[int, int], tuple[Ends, list[Edge]]] = {}
    for edge in (sent | received) if sent.keys() != received.keys() else sent:
        if edge.source in present and edge.target in present:
            ends = (sent.get(edge, ()), received.get(edge, ()))
            key = (id(ends[0]), id(ends[1]))
            if key not in alike:
                alike[key] = (Ends(*ends), [])
            alike[key][1].append(edge)
    yield from alike.values()


def all_edges(
    held: Sequence[ProgramClass], present: set[int], kind: OpKind, numbered: Numbered
) -> dict[Edge, Messages]:
    """Every edge on which something is sent (or received), with what is."""
    found: dict[Edge, Messages] = {}
    for each in held:
        if not posts(each.resolved):
            continue
        devices = present.intersection(each.devices)
        last: tuple[Lane, ...] | None = None
        messages: Messages = ()
        for edge, through in edges(each.resolved, devices, kind, numbered).items():
            if through is not last:
                last, messages = through, sequence(each.resolved, through)
            found[edge] = messages
    return found
