"""Opening a listening socket, and what is said where that cannot be."""

from __future__ import annotations

import pytest

from rankmuster.errors import OutOfResources
from rankmuster.transport.doors import TAKEN, open_door


def test_a_port_that_is_taken_asks_for_a_second_process_0():
    """Whose number is wrong hears of that first, and of free ports second."""
    with open_door("127.0.0.1") as first:
        port = first.getsockname()[1]
        with pytest.raises(OutOfResources) as no:
            open_door("127.0.0.1", port)
    assert str(no.value) == f"cannot listen on 127.0.0.1:{port}: Address already in use; {TAKEN}"
