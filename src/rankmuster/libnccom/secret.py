"""The job's secret, as the environment names it: a private file, or the text itself.

Without one, only processes of one user on one machine may meet, over the loopback.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from hashlib import blake2b
from pathlib import Path

from rankmuster.environment import BadSetting, Settings

AT_MOST = 1 << 12
AT_LEAST = 16


def secret_for(settings: Settings, host: str) -> bytes:
    """32 bytes that all processes of the job derive alike.

    Raises `BadSetting` for a secret file that others can read, for a short secret, and for none
    where *host* is not this machine's loopback.
    """
    if path := settings["RANKMUSTER_SECRET_FILE"]:
        given = read_private(path)
    elif text := settings["RANKMUSTER_SECRET"]:
        given = text.encode()
    elif is_loopback(host):
        given = b"loopback of user %d" % os.getuid()
    else:
        raise BadSetting(
            f"{host} is not this machine's loopback, and the job has no secret",
            fix="make one for all processes: (umask 077; openssl rand -hex 32 > ~/.muster); "
            "export RANKMUSTER_SECRET_FILE=~/.muster",
        )
    if len(given) < AT_LEAST:
        raise BadSetting(f"the job's secret has {len(given)} bytes", fix=f"use {AT_LEAST} or more")
    return blake2b(given, digest_size=32, person=b"muster secret").digest()


def is_loopback(host: str) -> bool:
    """Whether *host* is the loopback, by name or number."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_private(path: str) -> bytes:
    """The contents of a file that only its owner, we, can read. Raises `BadSetting`."""
    try:
        with Path(path).expanduser().open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                raise BadSetting(f"RANKMUSTER_SECRET_FILE={path!r} is not a file of this user")
            if status.st_mode & 0o077:
                raise BadSetting(
                    f"RANKMUSTER_SECRET_FILE={path!r} can be read by others",
                    fix=f"chmod 600 {path}",
                )
            return file.read(AT_MOST).strip()
    except OSError as error:
        raise BadSetting(f"RANKMUSTER_SECRET_FILE={path!r}: {error.strerror}") from error
