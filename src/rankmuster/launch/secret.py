"""What the processes of one job know and nobody else: where it comes from, the surest source first.

Never in the arguments and never in a log. A file has to be this user's and nobody else may read it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from rankmuster.errors import MusterError
from rankmuster.launch.names import SECRET, SECRET_FILE
from rankmuster.status import Status
from rankmuster.transport.base import Deadline

SECRET_BYTES = 32
AT_LEAST, AT_MOST = 16, 1 << 12
LOOK_S = 0.02  # between two looks for a key file
MAKE_ONE = (
    "make one that every process can read: (umask 077; openssl rand -hex 32 > ~/.muster); "
    f"export {SECRET_FILE}=~/.muster"
)


class BadSecret(MusterError):
    """There is no secret where one is needed, or it is not secret."""

    status = Status.INVALID


def given_secret(environ: Mapping[str, str], file: str = "") -> bytes | None:
    """The secret that the user gave: *file*, or what the environment names; None without one.

    Raises `BadSecret` for a file that is missing or that others can read, and for a short secret.
    """
    if path := file or environ.get(SECRET_FILE, ""):
        return _strong(read_private(path), path)
    if text := environ.get(SECRET, ""):
        return _strong(text.encode(), SECRET)
    return None


def piped_secret(descriptor: int) -> bytes | None:
    """The secret that waits in an inherited pipe, which is closed; None if there is none."""
    secret = b""
    with contextlib.suppress(OSError):  # closed, or not ours: the length tells
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            secret = os.read(descriptor, SECRET_BYTES)
            os.close(descriptor)
    return secret if len(secret) == SECRET_BYTES else None


def pipe_of(secret: bytes) -> int:
    """A pipe that a command which we become inherits, with a new secret that *secret* gives."""
    read_end, write_end = os.pipe()
    os.write(write_end, hmac.digest(secret, b"for the command", "sha256"))
    os.close(write_end)
    os.set_inheritable(read_end, True)  # noqa: FBT003 the system's own signature
    return read_end


def loopback_secret() -> bytes:
    """What stands for a secret between processes of one host: it keeps out nobody who tries."""
    return hashed(b"loopback of user %d" % os.getuid())


def hashed(text: bytes) -> bytes:
    """The bytes that a secret of any length comes to."""
    return blake2b(text, digest_size=SECRET_BYTES, person=b"muster secret").digest()


def read_private(path: str) -> bytes:
    """The contents of a file that only we can read. Raises `BadSecret`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                raise BadSecret(f"secret file {path!r} is not a file of this user")
            if status.st_mode & 0o077:
                mode = stat.S_IMODE(status.st_mode)
                raise BadSecret(
                    f"secret file {path!r} has mode {mode:04o}: others may use it",
                    fix=f"chmod 600 {path}, and better make a new secret",
                )
            return file.read(AT_MOST)
    except OSError as error:
        raise BadSecret(f"secret file {path!r}: {error.strerror}", fix=MAKE_ONE) from error


class KeyFile:
    """A secret that the process of device 0 makes and the others find, in a folder that all share.

    Its name is the job's, so that only the processes of one attempt of one job look at it.
    """

    def __init__(self, environ: Mapping[str, str], name: str) -> None:
        state = environ.get("XDG_STATE_HOME") or "~/.local/state"
        self.path = Path(state).expanduser() / "rankmuster" / f"{name}.key"

    def make(self) -> bytes:
        """Make it, and return the secret. Raises `BadSecret`."""
        secret = secrets.token_hex(SECRET_BYTES).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.remove()  # of an attempt that was killed: no two live ones have this name
            draft = self.path.with_suffix(f".{os.getpid()}")
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
                file.write(secret)
            draft.rename(self.path)  # so that nobody finds half of it
        except OSError as error:
            raise BadSecret(f"{self.path}: {error.strerror}", fix=MAKE_ONE) from error
        return hashed(secret)

    def find(self, deadline: Deadline) -> bytes:
        """Wait for it, and return the secret. Raises `BadSecret` at the deadline."""
        while not self.path.exists():
            if deadline.passed:
                raise BadSecret(
                    f"the process of device 0 left no key in {self.path} within "
                    f"{deadline.whole_s:g} s: it did not start, or the folder is not shared",
                    fix=MAKE_ONE,
                )
            time.sleep(min(LOOK_S, deadline.remaining()))
        return _strong(read_private(str(self.path)), str(self.path))

    def remove(self) -> None:
        """Remove it: everybody has read it, or nobody will any more."""
        self.path.unlink(missing_ok=True)


def _strong(secret: bytes, source: str) -> bytes:
    if len(secret.strip()) < AT_LEAST:
        raise BadSecret(
            f"the secret in {source} has {len(secret.strip())} bytes, fewer than {AT_LEAST}",
            fix=MAKE_ONE,
        )
    return hashed(secret.strip())
