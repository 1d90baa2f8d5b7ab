"""Opening a listening socket, and what is said where that cannot be."""

from __future__ import annotations

import pytest

from rankmuster.errors import OutOfResources
from rankmuster.transport.doors import TAKEN, open_door


def test_a_port_that_is_taken_asks_for_a_second_process_0():
    """Whose number is wrong hears of that first, and of free ports second."""
    with open_door("127.0.0.1") as first:
        place = "127.0.0.1:%d" % first.getsockname()[1]
        with pytest.raises(OutOfResources) as no:
            open_door("127.0.0.1", first.getsockname()[1])
    assert str(no.value) == f"cannot listen on {place}: Address already in use; {TAKEN}"
