"""The place of a process that another launcher started, or that was started by hand.

What the caller says beats RANKMUSTER_ variables, and those beat what the launcher says. Where two
sources of one rank contradict each other, the process takes part with the launcher's answer and
brings the contradiction along as a finding: all others learn whom to blame.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import accumulate

from rankmuster.address import Reach, join_address, reach_of, split_address
from rankmuster.finding import Finding, finding
from rankmuster.launch import variables
from rankmuster.launch.base import NO_OPTIONS, BrokenLaunch, Launcher, LaunchOptions, Place, number
from rankmuster.launch.held import Held, Job, held_for
from rankmuster.launch.names import (
    DEVICES,
    EPOCH,
    INTERFACE,
    JOB,
    LAUNCHER,
    PROCESS,
    PROCESSES,
    ROOT,
    SECRET_FD,
    WORLD_SIZE,
)
from rankmuster.launch.secret import (
    MAKE_ONE,
    BadSecret,
    KeyFile,
    given_secret,
    hashed,
    loopback_secret,
    piped_secret,
)
from rankmuster.launch.slurm import Slurm
from rankmuster.ranks import fold, unfold
from rankmuster.transport.base import Deadline, Transport
from rankmuster.transport.doors import open_door
from rankmuster.transport.interfaces import address_towards

MUSTERS_EACH = 1 << 16  # of one attempt


def launched(
    launcher: type[Launcher] | None,
    environ: Mapping[str, str],
    options: LaunchOptions,
    deadline: Deadline,
) -> Place:
    """This process's place for its next muster. Raises `BrokenLaunch` and `BadSecret`.

    Without a launcher *options*, with what the environment adds to them, have to say everything.
    """
    process, processes = _numbers(launcher, environ, options)
    if process >= processes:
        raise BrokenLaunch(f"process {process} of {processes}", fix="number processes from 0")
    findings = []
    if launcher is not None:
        sources = (launcher.PROCESS, launcher.PROCESSES)
        findings = _contradictions(sources, environ, options, process, processes)
    devices, size = _devices(process, processes, environ, options, findings)
    job = _job(launcher, environ, options)
    root = options.root or (launcher.root(environ) if launcher else "")
    held = held_for(Job(launcher.name if launcher else "", job, process, root))
    if held.root == "":
        _prepare(held, launcher, environ, options, deadline, root=root, leads=0 in devices)
    return Place(
        launcher=launcher.name if launcher else "",
        process=process,
        processes=processes,
        devices=devices,
        world_size=size,
        root=held.root,
        job=job,
        epoch=held.take_epoch(),
        secret=held.secret,
        open_door=functools.partial(held.open, options.interface) if 0 in devices else None,
        interface=options.interface,
        findings=tuple(replace(found, ranks=devices) for found in findings),
        notes=_notes(launcher, environ, options, held.root) if 0 in devices else (),
        at_plan=held.key.remove if held.key and 0 in devices else None,
    )


def carried(
    transport: Transport,
    environ: Mapping[str, str],
    options: LaunchOptions = NO_OPTIONS,
    launcher: type[Launcher] | None = None,
) -> Place:
    """This process's place for its next muster over *transport*, which says who we are.

    No root has to be found and no secret kept. Raises `BrokenLaunch`, also where process 0 does not
    hold device 0: the others could not know whom to ask; and where the *launcher* started several
    processes, each of which is a job of its own to the transport.
    """
    options = with_environment(environ, options)
    process, processes = transport.process, transport.processes
    if processes == 1 and launcher is not None and (started := launcher.processes(environ)) > 1:
        raise BrokenLaunch(
            f"{transport.SOURCES[1]} says 1, {launcher.PROCESSES} says {started}: "
            f"{launcher.name} and this library do not know each other",
            fix="start them by what the library knows (srun --mpi=pmi2), or say --engine tcp",
        )
    findings = _contradictions(transport.SOURCES, environ, options, process, processes)
    devices, size = _devices(process, processes, environ, options, findings)
    if (0 in devices) != (process == 0):
        raise BrokenLaunch(
            f"{transport.SOURCES[0]} says {process}, and we are to hold devices {fold(devices)}",
            fix="give device 0 to process 0, or say --engine tcp",
        )
    return Place(
        process=process,
        processes=processes,
        devices=devices,
        world_size=size,
        root="0",
        job=b"",
        epoch=0,
        secret=b"",
        transport=transport,
        findings=tuple(replace(found, ranks=devices) for found in findings),
    )


def with_environment(environ: Mapping[str, str], options: LaunchOptions) -> LaunchOptions:
    """*options*, and RANKMUSTER_ variables for what they leave open. Raises `BrokenLaunch`."""
    if options.launcher not in {"", environ.get(LAUNCHER, options.launcher)}:
        environ = {name: environ[name] for name in environ if name == INTERFACE}

    def counted(given: int | None, name: str) -> int | None:
        return given if given is not None or name not in environ else number(environ, name)

    try:
        devices = options.devices or unfold(environ.get(DEVICES, ""))
    except ValueError as error:
        raise BrokenLaunch(f"{DEVICES}={environ[DEVICES]!r}: {error}") from error
    return replace(
        options,
        launcher=options.launcher or environ.get(LAUNCHER, ""),
        process=counted(options.process, PROCESS),
        processes=counted(options.processes, PROCESSES),
        world_size=counted(options.world_size, WORLD_SIZE),
        devices=devices,
        root=options.root or environ.get(ROOT, ""),
        interface=options.interface or environ.get(INTERFACE, ""),
    )


def _numbers(
    launcher: type[Launcher] | None, environ: Mapping[str, str], options: LaunchOptions
) -> tuple[int, int]:
    """Our process number, and how many there are."""
    process, processes = options.process, options.processes
    if launcher is not None:
        process = launcher.process(environ) if process is None else process
        processes = launcher.processes(environ) if processes is None else processes
    if process is None or processes is None:
        missing = "--process" if process is None else "--processes"
        raise BrokenLaunch(f"no launcher started this process, and {missing} is not given")
    return process, processes


def _contradictions(
    sources: tuple[str, str],
    environ: Mapping[str, str],
    options: LaunchOptions,
    process: int,
    processes: int,
) -> list[Finding]:
    """RM006 for each number on which *sources* and the job's own variables differ."""
    told = variables.declared(environ)
    asked = (
        ("process number", sources[0], process, options.process),
        ("number of processes", sources[1], processes, options.processes),
    )
    found = []
    for what, source, value, given in asked:
        others = [f"{said.source} says {said.value}" for said in told[what] if said.value != value]
        if others and given is None:
            message = f"the {what}: {source} says {value}, {', '.join(others)}"
            found.append(finding("RM006", message))
    return found


def _devices(
    process: int,
    processes: int,
    environ: Mapping[str, str],
    options: LaunchOptions,
    findings: list[Finding],
) -> tuple[tuple[int, ...], int]:
    """Our devices, and the size of the world; consecutive ones unless we are told which."""
    size = options.world_size
    if options.devices:
        return options.devices, size or processes * len(options.devices)
    counts, source = options.devices_each, "--devices-per-process"
    if not counts and variables.NEURON_DEVICES in environ:
        counts, source = variables.devices_listed(environ), variables.NEURON_DEVICES
    if not counts:
        if size is not None and size % processes:
            raise BrokenLaunch(
                f"a world of {size} devices does not divide among {processes} processes",
                fix="say --devices-per-process",
            )
        counts = ((size or processes) // processes,)
    counts = counts * processes if len(counts) == 1 else counts
    if len(counts) != processes and options.devices_each:
        raise BrokenLaunch(f"{source} names {len(counts)} processes, and there are {processes}")
    if size is not None and sum(counts) != size:
        message = f"the world size: --world says {size}, {source} adds up to {sum(counts)}"
        findings.append(finding("RM006", message))
    ends = list(accumulate(counts))
    if process >= len(ends):
        raise BrokenLaunch(f"{source} names {len(ends)} processes, and this is process {process}")
    return tuple(range(ends[process] - counts[process], ends[process])), size or ends[-1]


def _job(
    launcher: type[Launcher] | None, environ: Mapping[str, str], options: LaunchOptions
) -> bytes:
    """The job's name, alike on all its processes and on no others."""
    if JOB in environ:
        try:
            return bytes.fromhex(environ[JOB])
        except ValueError:
            raise BrokenLaunch(f"{JOB}={environ[JOB]!r} is no hexadecimal number") from None
    names = (
        (launcher.name, options.root, *launcher.job(environ)) if launcher else ("", options.root)
    )
    text = "\0".join(names)
    return blake2b(text.encode(), digest_size=16, person=b"job").digest()


def _prepare(
    held: Held,
    launcher: type[Launcher] | None,
    environ: Mapping[str, str],
    options: LaunchOptions,
    deadline: Deadline,
    *,
    root: str,
    leads: bool,
) -> None:
    """Find the secret and the root, once for all musters of this process in one job."""
    attempt = number(environ, launcher.ATTEMPT) if launcher and launcher.ATTEMPT in environ else 0
    held.next_epoch = number(environ, EPOCH) if EPOCH in environ else attempt * MUSTERS_EACH
    if not root and launcher is None:
        raise BrokenLaunch("nobody says where the root is", fix="say --root host:port")
    if not root and launcher is not None:
        found = _publish(held, options, launcher.port(environ)) if leads else None
        root = launcher.share(environ, found, deadline)
    host, _ = split_address(root)
    secret = given_secret(environ, options.secret_file)
    if secret is None and SECRET_FD in environ:
        secret = piped_secret(number(environ, SECRET_FD))
    if secret is None and launcher is Slurm:
        held.key = KeyFile(environ, Slurm.job_name(environ))
        secret = held.key.make() if leads else held.key.find(deadline)
    held.secret = secret or _without_secret(host, insecure=options.insecure)
    held.root = root


def _publish(held: Held, options: LaunchOptions, port: int) -> str:
    """Open the root's door now, and return the address that the others are to be told."""
    held.fresh = held.fresh or open_door("", port, options.interface)
    host, port = held.fresh.getsockname()[:2]
    if host in {"::", "0.0.0.0"}:  # noqa: S104 - compared, not bound
        # The way to anywhere: an address of TEST-NET-1 (RFC 5737), to which nothing is sent.
        host = address_towards("192.0.2.1") or socket.gethostname()
    return join_address((host, port))


def _without_secret(host: str, *, insecure: bool) -> bytes:
    """What is used where nobody gave a secret. Raises `BadSecret` where that will not do."""
    if reach_of(host) is Reach.LOOPBACK:
        return loopback_secret()
    if insecure:
        return hashed(b"insecure")
    raise BadSecret(f"{host} is not this host's loopback, and the job has no secret", fix=MAKE_ONE)


def _notes(
    launcher: type[Launcher] | None,
    environ: Mapping[str, str],
    options: LaunchOptions,
    root: str,
) -> tuple[str, ...]:
    """What people should know of the root's address, for the process that leads."""
    if options.root or launcher is None:
        return ()
    theirs = {
        name: environ[name]
        for name in ("NEURON_RT_ROOT_COMM_ID", "JAX_COORDINATOR_ADDRESS", "MASTER_PORT")
        if name in environ
    }
    kept = ", ".join(f"{name}={value}" for name, value in theirs.items())
    why = f"; {kept} stays the job's own" if kept else ""
    return (f"the root listens on {root}, as {launcher.name} has it{why}",)
