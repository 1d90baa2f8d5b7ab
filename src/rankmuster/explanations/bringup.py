"""RM6 and RM7: who did not come, and what the evidence does not say."""

from __future__ import annotations

from rankmuster.explanations.base import Explanation

BRING_UP = {
    "RM601": Explanation(
        "Nobody spoke for these devices: no process came, or no file stands for them.",
        "A process failed before it could say anything, a node was not allocated, a dump was not "
        "copied.",
        "0.json, 1.json and 3.json for a world of 4",
    ),
    "RM602": Explanation(
        "A process was there and went away: its connection ended.",
        "It crashed or was killed; the message names the phase. Often the kernel's out-of-memory "
        "killer.",
        "process 3 is killed while groups form",
    ),
    "RM603": Explanation(
        "A process is there and did not answer in time.",
        "It still reads or compiles its program, or stands still: a full file system, a debugger.",
        "a process that is stopped with SIGSTOP",
    ),
    "RM604": Explanation(
        "Connections came that do not belong to this job. They were turned away by kind, and cost "
        "nothing but their own time.",
        "Port scanners, health checks, a browser, processes of an attempt that should be gone.",
        "refused 3 connections: 2 HTTP request, 1 silent",
    ),
    "RM605": Explanation(
        "Two processes, or two files, stand for one device.",
        "A process number that was exported by hand; two launches of one job; a folder that holds "
        "files of two attempts.",
        "two processes with RANK=3",
    ),
    "RM606": Explanation(
        "A process tried to take part with another secret.",
        "An old RANKMUSTER_SECRET on one host, or a secret file that was made anew in between.",
        "one host reads another secret file",
    ),
    "RM607": Explanation(
        "A process runs another version. Versions may sign differently, so they are not compared.",
        "An image that was not rebuilt.",
        "0.1.0 on one host, 0.2.0 on the others",
    ),
    "RM608": Explanation(
        "A process says that it listens at an address that others may not reach: it is not the one "
        "that the root sees it come from. An error once a peer tried to connect and could not.",
        "A host with several networks, address translation, a name that means the loopback, or a "
        "firewall.",
        "--interface docker0, whose address every host has",
    ),
    "RM701": Explanation(
        "The input is not what its format says. The message names line and column, or the byte.",
        "A file that was cut off while it was copied, edited by hand, or is something else.",
        "a module whose last brace is missing",
    ),
    "RM702": Explanation(
        "The format is known, this version of it is not.",
        "The file was written by something newer.",
        '"format": "rankmuster.program/9"',
    ),
    "RM703": Explanation(
        "A constant that decides which branch runs was left out of the text, so two processes that "
        "look alike may not be.",
        "XLA shortens large constants to {...} unless --xla_dump_large_constants is set.",
        "conditional over constant({...})",
    ),
    "RM704": Explanation(
        "Something that nobody stated was inferred, and the rest of the report relies on it.",
        "No world size in file or option; fewer files than devices; files without numbers.",
        "two files for a world of 8: each stands for four devices",
    ),
    "RM705": Explanation(
        "The recorder keeps only the newest entries, and the beginning is gone.",
        "A buffer that is smaller than what the job posted.",
        "a ring buffer whose first entry is number 2000",
        is_reserved=True,
    ),
    "RM706": Explanation(
        "The evidence lacks a field. Where all of it does, the verdict holds for the rest; where "
        "only a part does, the verdict stays open: what is not recorded is never a difference.",
        "A format that does not keep the field, such as a NEFF without its ops.",
        '"reduce": null in one of two files',
    ),
}
