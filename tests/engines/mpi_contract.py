"""Run under `mpiexec -n 2`: rank 1 checks the contract, rank 0 lends it the other endpoint.

Prints the name of each check that holds.
"""

from __future__ import annotations

import traceback
from contextlib import closing, contextmanager

from mpi4py import MPI

from rankmuster.errors import MusterError
from rankmuster.testing import contract
from rankmuster.transport.base import Deadline, Identity, Role
from rankmuster.transport.mpi import MpiTransport

WORLD = MPI.COMM_WORLD
US = Identity(WORLD.rank, WORLD.rank, 1)


def opened():
    deadline = Deadline.after(600)
    return MpiTransport(deadline=deadline).open(US, deadline)


class Remote:
    """The endpoint of rank 0, called from rank 1."""

    def __init__(self) -> None:
        self.call("open")

    def call(self, name: str, *arguments):
        WORLD.send((name, arguments), dest=0)
        outcome = WORLD.recv(source=0)
        if isinstance(outcome, MusterError):
            raise outcome
        return outcome

    def __getattr__(self, name: str):
        return lambda *arguments: self.call(name, *arguments)


def serve() -> None:
    endpoint = None
    while True:
        name, arguments = WORLD.recv(source=1)
        outcome: object = None
        try:
            if name == "open":
                endpoint = opened()
            elif name == "end":
                return
            else:
                outcome = getattr(endpoint, name)(*arguments)
        except MusterError as error:
            outcome = error
        WORLD.send(outcome, dest=1)


@contextmanager
def pair():
    with closing(Remote()) as zero, closing(opened()) as one:
        yield one, zero, one.dial("0", Role.PEER)


if WORLD.rank == 0:
    serve()
else:
    try:
        for check in contract.CHECKS:
            check(pair)
            print(check.__name__, flush=True)  # noqa: T201 the test reads it
        WORLD.send(("end", ()), dest=0)
    except BaseException:  # noqa: BLE001 rank 0 must not wait for what never comes
        traceback.print_exc()
        WORLD.Abort(1)
