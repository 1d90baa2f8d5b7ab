"""What every transport must keep, as checks that whoever writes one can run over it.

    check_transport(maker)

*maker* makes a context manager of two endpoints and a handle on which the first, of process 1, can
send to the second, of process 0; leaving it closes both. The second may stand for one in another
process. Each check fails by AssertionError.
"""

from __future__ import annotations

from rankmuster.testing.channel_contract import CHANNEL_CHECKS
from rankmuster.testing.endpoint_contract import ENDPOINT_CHECKS, Maker

CHECKS = (*ENDPOINT_CHECKS, *CHANNEL_CHECKS)


def check_transport(maker: Maker) -> None:
    """Run every check over the transport that *maker* makes."""
    for check in CHECKS:
        check(maker)
