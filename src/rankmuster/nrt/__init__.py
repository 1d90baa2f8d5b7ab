"""The original entry points of libnrt's collectives control plane, by name (facts §4).

They return a `Status` and never raise for what a caller can cause; results go into an `Out`. The
functions here work on one runtime of the process, as the original's do; make a `Runtime` to have
another beside it.

    >>> model = Out()
    >>> nrt_init(0, "", "")
    >>> nrt_load_collectives(text, len(text), 0, -1, 0, 4, model)
"""

from __future__ import annotations

from rankmuster.nrt.arguments import NrtCcComm as NrtCcComm
from rankmuster.nrt.arguments import Out as Out
from rankmuster.nrt.model import Compat as Compat
from rankmuster.nrt.model import Model as Model
from rankmuster.nrt.runtime import Runtime as Runtime
from rankmuster.status import Status as Status

DEFAULT = Runtime()
"""The process's own runtime; it reads the environment when it is initialised."""

nrt_init = DEFAULT.nrt_init
nrt_close = DEFAULT.nrt_close
nrt_build_global_comm = DEFAULT.nrt_build_global_comm
nrt_cc_global_comm_init = DEFAULT.nrt_cc_global_comm_init
nrt_load_collectives = DEFAULT.nrt_load_collectives
nrt_unload = DEFAULT.nrt_unload
nrt_barrier = DEFAULT.nrt_barrier
nrt_all_gather = DEFAULT.nrt_all_gather
nrta_cc_prepare = DEFAULT.nrta_cc_prepare
