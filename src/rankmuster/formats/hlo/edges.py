"""Which instruction of a computation uses which, by arrays, for text as XLA prints it.

  %add.3 = f32[8]{0} add(%psum.1, %mul.2), metadata={op_name="jit(step)/add"}
  ROOT %tuple.9 = (f32[8]{0}) tuple(%add.3)

One line an instruction, and a "%" before every name: then bytes tell names and operands apart, and
no line is parsed. Any other spelling is left to `graph`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_USUAL, _ROOT = b"  %", b"  ROOT %"
_WIDTHS = 32, 64, 256  # bytes of a name that are compared; nearly all are shorter than the first
_MIX = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Edges:
    """The uses between instructions of some computations, numbered in text order.

    `starts` are where their names stand, `used[offsets[i]:offsets[i + 1]]` what number i uses, in
    the order of its operands, and `roots` the numbers of the ROOTs; all as arrays.
    """

    starts: Any
    offsets: Any
    used: Any
    roots: Any

    def numbers(self, starts: Sequence[int]) -> list[int] | None:
        """The numbers of the instructions at *starts*, None where there is none at one of them."""
        import numpy as np

        found = np.searchsorted(self.starts, starts)
        there = self.starts[np.minimum(found, len(self.starts) - 1)]
        numbers: list[int] = found.tolist()
        return numbers if np.array_equal(there, starts) else None

    def forks(self, wanted: Sequence[int]) -> tuple[dict[int, list[int]], list[int]]:
        """The graph that is left of the uses that lead to *wanted*, and where it begins.

        An instruction from which all ways lead first to one and the same fork or wanted one is
        left out, and that one is put in its place: in any depth-first order *wanted* come as in
        the whole graph. There is one beginning for each ROOT, -1 where it leads to none.
        """
        import numpy as np

        counts = np.diff(self.offsets)
        is_met = counts > 1
        is_met[wanted] = True
        is_passed = (counts == 1) & ~is_met
        onward = np.arange(len(counts))
        onward[is_passed] = self.used[self.offsets[:-1][is_passed]]
        while not np.array_equal(onward, further := onward[onward]):
            onward = further
        used, offsets, chosen = onward[self.used].tolist(), self.offsets.tolist(), set(wanted)
        leads_to: dict[int, int] = {}
        forks: dict[int, list[int]] = {}
        for number in np.flatnonzero(is_met).tolist():
            ways = used[offsets[number] : offsets[number + 1]]
            leads = [leads_to[each] for each in ways if each in leads_to]
            if number in chosen or leads.count(leads[0] if leads else 0) < len(leads):
                forks[number] = leads
                leads_to[number] = number
            elif leads:
                leads_to[number] = leads[0]
        return forks, [leads_to.get(each, -1) for each in onward[self.roots].tolist()]


def read_edges(bodies: Sequence[bytes]) -> Edges | None:
    """The edges between the instructions of each of *bodies*; None for any other spelling.

    Positions are those in all bodies joined. Each ends with the end of a line, and names that none
    of its lines defines are left out.
    """
    import numpy as np

    body = b"".join([*bodies, bytes(_WIDTHS[-1] + len(_ROOT))])
    text = np.frombuffer(body, np.uint8)
    ends = np.cumsum([len(each) for each in bodies])
    defined = _definitions(text, ends)
    if defined is None or not _has_usual_comments(text):
        return None
    starts, roots = defined
    found = _operands(body, text, starts)
    if found is None:
        return None
    operands, users = found
    for width in _WIDTHS:
        names, used = _names(text, starts, width), _names(text, operands, width)
        if names is not None and used is not None:
            break
    else:
        return None
    if not _follows(text, names[1], b" = ").all() or not _is_list(text, operands, used[1], users):
        return None
    joined = _joined(np.searchsorted(ends, starts, "right"), users, names[0], used[0])
    return Edges(starts + 1, *joined, roots) if joined else None


def _definitions(text: Any, ends: Any) -> tuple[Any, Any] | None:
    """Where the "%" of each definition stands; which definition is the ROOT of each body."""
    import numpy as np

    breaks = np.flatnonzero(text[: ends[-1]] == ord("\n"))
    lines = np.append(0, breaks + 1)
    lines = lines[(text[lines] != ord("\n")) & (text[lines] != 0)]  # not empty, nor the end
    is_root = _follows(text, lines, _ROOT)
    if not (is_root | _follows(text, lines, _USUAL)).all():
        return None
    starts = lines + np.where(is_root, len(_ROOT), len(_USUAL)) - 1
    roots = np.searchsorted(starts, ends) - 1  # the last, where none is marked
    marked = np.flatnonzero(is_root)
    bodies = np.searchsorted(ends, starts[marked], "right")
    if (bodies[1:] == bodies[:-1]).any():
        return None
    roots[bodies] = marked
    return starts, roots


def _has_usual_comments(text: Any) -> bool:
    """Whether all comments are as /*index=5*/; others could hide lines."""
    import numpy as np

    stars = np.flatnonzero(text == ord("*"))
    opening = stars[text[stars - 1] == ord("/")]
    return bool(_follows(text, opening, b"*index=").all())


def _operands(body: bytes, text: Any, starts: Any) -> tuple[Any, Any] | None:
    """Where the "%" of each operand stands, and the number of the instruction that has it."""
    import numpy as np

    signs = np.flatnonzero(text == ord("%"))
    lines = np.searchsorted(starts, signs, "right") - 1
    before = text[signs - 1]
    calls = (before == ord("=")) | (before == ord("{"))  # to_apply=%add, calls={%f}
    if any(body.endswith(b"control-predecessors={", 0, at) for at in signs[calls].tolist()):
        return None
    # Operands end where the first string or computation begins: strings hold anything.
    quotes = np.append(np.flatnonzero(text == ord('"')), len(body))
    ends = quotes[np.searchsorted(quotes, starts)]
    first = np.full(len(starts), len(body))
    first[lines[calls][::-1]] = signs[calls][::-1]
    if _is_named_without_sign(body, text, starts, ends):
        return None
    is_operand = (signs < np.minimum(ends, first)[lines]) & (signs != starts[lines])
    return signs[is_operand], lines[is_operand]


def _is_named_without_sign(body: bytes, text: Any, starts: Any, ends: Any) -> bool:
    """Whether an operand may stand behind an opcode that has no "%" before its name."""
    import numpy as np

    brackets = np.flatnonzero((text[:-1] == ord("(")) & (text[1:] >= ord("A")))
    brackets = brackets[brackets < ends[np.searchsorted(starts, brackets, "right") - 1]]
    # "= (f32[8], (s32[]))" is a shape, "constant({1, 2})" and "constant(true)" are literals.
    before = text[brackets - 1]
    is_shape = (before == ord(" ")) | (before == ord("("))
    doubtful = brackets[~is_shape & (text[brackets + 1] != ord("{"))].tolist()
    return any(not body.endswith(b" constant", 0, bracket) for bracket in doubtful)


def _names(text: Any, signs: Any, width: int) -> tuple[Any, Any] | None:
    """The names behind *signs*, as rows of 64-bit words that end in zeros, and where they end.

    None if any is as long as *width*.
    """
    import numpy as np

    rows = np.lib.stride_tricks.sliding_window_view(text, width)[signs + 1]
    is_end = rows < ord("-")
    lengths = is_end.argmax(axis=1)
    if not is_end[np.arange(len(rows)), lengths].all():
        return None
    rows *= np.arange(width, dtype=np.uint8) < lengths.astype(np.uint8)[:, None]
    return rows.view(np.uint64), signs + 1 + lengths


def _follows(text: Any, places: Any, what: bytes) -> Any:
    """Whether *what*, of up to eight bytes, stands at each of *places*."""
    import numpy as np

    # The same memory read as the eight bytes that begin at each position.
    eights = np.ndarray((len(text) - 7,), "<u8", buffer=text, strides=(1,))
    mask = np.uint64((1 << 8 * len(what)) - 1)
    return (eights[places] & mask) == np.uint64(int.from_bytes(what, "little"))


def _is_list(text: Any, signs: Any, ends: Any, lines: Any) -> bool:
    """Whether the operands of each line are "(%a, %b, /*index=5*/%c)", with nothing between."""
    import numpy as np

    is_first = np.append(True, lines[1:] != lines[:-1])[: len(lines)]
    is_last = np.append(is_first[1:], True)[: len(lines)]
    behind, inner = ends[~is_last], signs[~is_first]
    is_near = (inner == behind + 2) & _follows(text, behind, b", ")
    return bool(
        (text[signs[is_first] - 1] == ord("(")).all()
        and (text[ends[is_last]] == ord(")")).all()
        and (is_near | _follows(text, behind, b", /*") & (text[inner - 1] == ord("/"))).all()
    )


def _joined(bodies: Any, users: Any, definitions: Any, operands: Any) -> tuple[Any, Any] | None:
    """`offsets` and `used`: each of *users* uses what defines its operand in the same body."""
    import numpy as np

    words = np.uint64(_MIX) * np.arange(1, 2 * definitions.shape[1], 2, dtype=np.uint64)
    keys, wanted = (definitions * words).sum(axis=1), (operands * words).sum(axis=1)
    keys ^= bodies.astype(np.uint64) << np.uint64(40)
    wanted ^= bodies[users].astype(np.uint64) << np.uint64(40)
    order = np.argsort(keys)
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        return None
    used = order[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)]
    is_known = (definitions[used] == operands).all(axis=1) & (bodies[used] == bodies[users])
    used, users = used[is_known], users[is_known]
    if (used >= users).any():
        return None
    return np.searchsorted(users, np.arange(len(bodies) + 1)), used
