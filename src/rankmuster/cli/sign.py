"""`rankmuster sign`: the digests that one device computes, and what goes into them."""

from __future__ import annotations

from typing import Any

import click

from rankmuster.checking import device_signatures
from rankmuster.cli.output import Output
from rankmuster.cli.programs import load_one, program_options
from rankmuster.render.words import printable
from rankmuster.resolve import Resolved
from rankmuster.signature import canonical, libnrt


@click.command()
@click.argument("program")
@click.option("--device", type=click.IntRange(0), required=True, metavar="D", help="A device id.")
@click.option("--show-views", is_flag=True, help="Also list what is hashed, op by op.")
@program_options
def sign(program: str, device: int, *, show_views: bool, **said: Any) -> None:
    """Print the signatures that device D computes for PROGRAM, in both projections."""
    resolved = load_one(program, said, device).resolved
    signatures = {
        "schema": "rankmuster.signatures/1",
        "device": device,
        **device_signatures(resolved, device).to_dict(),
    }
    if show_views:
        signatures["views"] = views(resolved, device)
    Output.current().answer(text(signatures), signatures)


def views(resolved: Resolved, device: int) -> dict[str, Any]:
    """What is hashed: libnrt's bytes for each set, canonical's tokens for each communicator."""
    return {
        "libnrt": {
            str(each.id): [view.hex() for view in libnrt.set_views(resolved, each, device)]
            for each in resolved.sets
            if device in each.by_device
        },
        "canonical": {
            ",".join(map(str, members)): [
                [field.hex() if isinstance(field, bytes) else field for field in token.key]
                for token in canonical.posting(resolved, members)
            ]
            for members in resolved.communicators(device)
        },
    }


def text(signatures: dict[str, Any]) -> str:
    """The signatures for people: the digest first, then what it stands for."""
    seed, ours = signatures["libnrt"], signatures["canonical"]
    shown = signatures.get("views", {"libnrt": {}, "canonical": {}})
    whole = seed["whole"] or "none: the device is in no group"
    lines = [f"device {signatures['device']}", "libnrt", f"  {whole:32}  whole program"]
    for number, digest in seed["groups"].items():
        lines.append(f"  {digest}  group {number}")
        lines += [f"    {view}" for view in shown["libnrt"].get(number, ())]
    lines += ["canonical", f"  {ours['program']}  program"]
    for members, digest in ours["communicators"].items():
        lines.append(f"  {digest}  communicator {members}")
        lines += [
            f"    {printable(words(*token))}" for token in shown["canonical"].get(members, ())
        ]
    return "\n".join(lines)


def words(what: str, *values: Any) -> str:
    """A token for people: "all_reduce elements=8 dtype=f32 reduce=add", "loop trips=12"."""
    names = canonical.OP_FIELDS if what == "op" else ("trips",)
    named = zip(names, values, strict=False)
    fields = [(name, each) for name, each in named if each not in (None, (), [])]
    if what == "op":
        what = str(fields.pop(0)[1])
    elif what == "loop" and not fields:
        fields = [("trips", "unknown")]
    return " ".join([what, *(f"{name}={plain(each)}" for name, each in fields)])


def plain(value: Any) -> str:
    """A value, or those of all operands."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
