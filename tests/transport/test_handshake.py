"""Two generators prove themselves to each other, without a socket."""

from __future__ import annotations

import pytest

from rankmuster.address import Ends
from rankmuster.transport.base import Identity, Role
from rankmuster.transport.handshake import (
    CONFIRM,
    HELLO,
    Credentials,
    Proven,
    Refused,
    Turn,
    dial,
    listen,
)

US = Credentials(b"s" * 32, b"job", 4)
DIALLER, LISTENER = Identity(5, 10, 2), Identity(0, 0, 2)
LONGEST = ":".join(["ffff"] * 8)
ENDS = Ends(f"[{LONGEST}]:65535", f"[{LONGEST}]:65534")


def shake(
    dialler=US, listener=US, *, tamper=lambda _number, message: message
) -> tuple[Proven, Proven]:
    """Run both sides against each other; *tamper* may change the n-th message."""
    sides = [
        dial(dialler, DIALLER, Role.PEER, b"d" * 16, ENDS),
        listen(listener, LISTENER, b"l" * 16),
    ]
    turns: list[Turn] = [next(side) for side in sides]
    inboxes = [b"", b""]
    proven: list[Proven | None] = [None, None]
    number = 0
    while None in proven:
        for me in (0, 1):
            if proven[me] is not None:
                continue
            if turns[me].send:
                inboxes[1 - me] += tamper(number, turns[me].send)
                number += 1
                turns[me] = turns[me]._replace(send=b"")
            needs = turns[me].needs
            if len(inboxes[me]) >= needs:
                taken, inboxes[me] = inboxes[me][:needs], inboxes[me][needs:]
                try:
                    turns[me] = sides[me].send(taken)
                except StopIteration as stop:
                    proven[me] = stop.value
                except Refused as refused:
                    if not refused.reply:
                        raise
                    inboxes[1 - me] += refused.reply
    return proven[0], proven[1]


def test_both_sides_learn_who_the_other_is_and_share_crossed_keys():
    """What one side sends with, the other receives with, and the directions differ."""
    mine, theirs = shake()
    assert (mine.identity, theirs.identity) == (LISTENER, DIALLER)
    assert (mine.role, theirs.role) == (Role.PEER, Role.PEER)
    assert mine.send_key == theirs.receive_key
    assert mine.receive_key == theirs.send_key
    assert mine.send_key != mine.receive_key


def test_a_wrong_secret_is_told_so():
    """Who holds another secret learns that, and nothing else."""
    with pytest.raises(Refused, match="wrong secret"):
        shake(dialler=US._replace(secret=b"x" * 32))


def test_another_job_is_a_wrong_secret():
    """The job is part of every proof."""
    with pytest.raises(Refused, match="wrong secret"):
        shake(dialler=US._replace(job=b"other"))


def test_another_epoch_is_refused_with_the_listeners():
    """A process of an earlier attempt is turned away, and told how far the others are."""
    with pytest.raises(Refused, match="other epoch") as caught:
        shake(dialler=US._replace(epoch=3))
    assert caught.value.theirs == 4


def test_a_replayed_hello_gets_no_further():
    """Without the secret nobody can confirm over the listener's nonce."""
    hello = next(dial(US, DIALLER, Role.PEER, b"d" * 16, ENDS)).send
    side = listen(US, LISTENER, b"fresh nonce here")
    next(side)
    assert side.send(hello).knocked == (DIALLER, Role.PEER)
    with pytest.raises(Refused, match="not confirmed"):
        side.send(bytes(CONFIRM.size))


@pytest.mark.parametrize("message", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 9, 12, 20, 31, 60, -1])
def test_no_message_can_be_altered(message, place):
    """Any byte changed on the way ends the handshake on the side that reads it."""

    def flip(number: int, text: bytes) -> bytes:
        if number != message:
            return text
        changed = bytearray(text)
        changed[place] ^= 0x10
        return bytes(changed)

    with pytest.raises(Refused):
        shake(tamper=flip)


def test_the_listener_reads_one_hello_and_no_more():
    """At most 256 bytes are taken from who has shown nothing."""
    side = listen(US, LISTENER, b"l" * 16)
    assert next(side) == Turn(b"", HELLO.size, prefix=b"RMUSTER\n")
    assert HELLO.size <= 256
