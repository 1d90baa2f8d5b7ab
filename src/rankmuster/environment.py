"""The environment variables of the control plane: names, types, defaults, and their values here.

The variables are handed in; nothing is read from the system. Undocumented ones are marked (public
reverse engineering, facts §6.2).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankmuster.errors import MusterError, did_you_mean
from rankmuster.status import Status

MIB = 1 << 20
U32 = 0xFFFF_FFFF
DIGITS = 20  # of the largest u64
NO, YES = False, True
PREFIXES = ("NEURON_RT_", "RANKMUSTER_")


class BadSetting(MusterError):
    """An environment variable holds what its type does not allow."""

    status = Status.INVALID


def truth(text: str) -> bool:
    """0 or 1, or the words for them."""
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off"}:
        return False
    raise ValueError("write 0 or 1")


def plain(text: str) -> str:
    """Text that the system's calls take: UTF-8, and no zero."""
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise ValueError("write UTF-8 without zeroes")
    return text


def number(low: int, high: int) -> Callable[[str], int]:
    """A whole number from *low* to *high*."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else -1
        if not low <= value <= high:
            raise ValueError(f"write a whole number from {low} to {high}")
        return value

    return parse


def seconds(text: str) -> float:
    """A time ahead, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1e6:
        raise ValueError("write seconds, such as 60")
    return value


def one_of(*names: str) -> Callable[[str], str]:
    """One of *names*."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(did_you_mean(text, names))
        return text

    return parse


def cores(text: str) -> range:
    """Cores of this host such as "3" or "0,1,4-7": consecutive and increasing (facts §6.1)."""
    listed: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            listed += range(number(0, 255)(first), number(0, 255)(last or first) + 1)
    except ValueError:
        listed = []
    if not listed or listed != list(range(listed[0], listed[0] + len(listed))):
        raise ValueError("write consecutive, increasing core numbers below 256, such as 0-3")
    return range(listed[0], listed[0] + len(listed))


class Variable(NamedTuple):
    """One variable: `parse` raises ValueError with what to write instead."""

    name: str
    type: str
    default: Any
    parse: Callable[[str], Any]
    effect: str
    documented: bool = True


ROOT_COMM_ID = "NEURON_RT_ROOT_COMM_ID"
VARIABLES: tuple[Variable, ...] = (
    Variable(ROOT_COMM_ID, "ip:port", "", plain,
             "where device 0 listens, or [ipv6]:port; needed for any collective"),
    Variable("NEURON_RT_VISIBLE_CORES", "cores", None, cores,
             "the host's cores that this process owns, counted from 0 in it; wins over NUM_CORES"),
    Variable("NEURON_RT_NUM_CORES", "uint", 0, number(0, 256),
             "how many cores this process owns, from core 0; 0 for all"),
    Variable("NEURON_RT_VIRTUAL_CORE_SIZE", "uint", None, number(1, 2),
             "physical cores of a logical one (LNC)"),
    Variable("NEURON_LOGICAL_NC_CONFIG", "uint", None, number(1, 2),
             "the same, by the name that tools and frameworks use"),
    Variable("NEURON_RT_FAKE_INSTANCE_TYPE", "name", "trn2.48xlarge", plain,
             "the server that this machine plays", documented=False),
    Variable("NEURON_RT_ULTRASERVER_MODE", "uint", 0, number(0, 4),
             "what of a pod the job uses: 0 unset, 1 X4, 2 X2H, 3 X2V, 4 X1", documented=False),
    Variable("NEURON_RT_ULTRASERVER_SINGLE_NODE", "bool", NO, truth,
             "no pod, whatever the mode says", documented=False),
    Variable("NEURON_RT_ULTRASERVER_NODE_ID", "uint", None, number(0, U32),
             "this server's place in its pod; unset for no pod", documented=False),
    Variable("NEURON_RT_ULTRASERVER_SERVER_ID", "uint", 0, number(0, (1 << 64) - 1),
             "the pod itself (reservation id)", documented=False),
    Variable("NEURON_RT_DBG_VIRTUAL_SERVER_SIZE", "uint", 0, number(0, U32),
             "devices of a virtual server; must divide the world", documented=False),
    Variable("NEURON_RT_DBG_CC_CHECK_SIGS", "bool", YES, truth,
             "compare signatures before a communicator forms; alike in all processes",
             documented=False),
    Variable("NEURON_RT_DBG_CC_SORT_RG", "bool", NO, truth,
             "sort the members of replica groups", documented=False),
    Variable("NEURON_RT_CC_CHANNEL_BUFFER_N", "uint", 8, number(1, 32),
             "chunks of a channel buffer", documented=False),
    Variable("NEURON_RT_CC_CHUNK_SIZE", "bytes", 2 * MIB, number(1, 1 << 40),
             "size of such a chunk", documented=False),
    Variable("RANKMUSTER_NRT_DEADLINE", "seconds", 60.0, seconds,
             "how long one call may wait for other processes"),
    Variable("RANKMUSTER_NRT_KEY_ORDER", "declared|sorted", "declared",
             one_of("declared", "sorted"),
             "order of bootstrap participants; sorted is 2.31.24's, with its hazard"),
    Variable("RANKMUSTER_NRT_MAX_GROUPS", "uint", 12, number(1, 16),
             "group sets that one program may have; 16 from runtime 2.34.10 on"),
    Variable("RANKMUSTER_NRT_LIBNCCOM", "path", "", plain,
             "a shared library to use instead of our own transports"),
    Variable("RANKMUSTER_SECRET_FILE", "path", "", plain,
             "the job's secret, in a file of mode 0600; needed beyond this machine"),
    Variable("RANKMUSTER_SECRET", "text", "", plain, "the job's secret itself"),
)  # fmt: skip
BY_NAME: Mapping[str, Variable] = {each.name: each for each in VARIABLES}
SECRET_NAMES = frozenset({"RANKMUSTER_SECRET"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The variables' values; `settings["NAME"]`. Unset ones have their default."""

    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """The value of a known variable."""
        return self.values[name]

    @property
    def core_size(self) -> int | None:
        """Physical cores of a logical one, None where nobody says (both names mean it)."""
        size: int | None = self["NEURON_RT_VIRTUAL_CORE_SIZE"] or self["NEURON_LOGICAL_NC_CONFIG"]
        return size


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Every known variable, typed. Raises `BadSetting` for the first whose value cannot be."""
    values = {each.name: value_of(each, environ) for each in VARIABLES}
    runtime, tools = values["NEURON_RT_VIRTUAL_CORE_SIZE"], values["NEURON_LOGICAL_NC_CONFIG"]
    if runtime and tools and runtime != tools:
        raise BadSetting(
            f"NEURON_RT_VIRTUAL_CORE_SIZE={runtime} and NEURON_LOGICAL_NC_CONFIG={tools} disagree",
            fix="set one of them",
        )
    return Settings(values)


def value_of(variable: Variable, environ: Mapping[str, str]) -> Any:
    """One variable's value, or its default where it is unset or empty. Raises `BadSetting`."""
    text = environ.get(variable.name, "").strip()
    if not text:
        return variable.default
    try:
        return variable.parse(text)
    except ValueError as error:
        shown = "" if variable.name in SECRET_NAMES else f"={text!r}"
        raise BadSetting(
            f"{variable.name}{shown} is not of type {variable.type}", fix=str(error)
        ) from None


def near_misses(environ: Mapping[str, str]) -> dict[str, str]:
    """Names that look like misspelt ones of ours, each with a hint."""
    strange = (name for name in environ if name.startswith(PREFIXES) and name not in BY_NAME)
    near = {name: difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.9) for name in strange}
    return {name: f"did you mean {found[0]!r}?" for name, found in near.items() if found}
