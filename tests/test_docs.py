"""README and docs: what they show is what happens, and what they list is what exists.

Every `console` block is typed into a shell and every `python` block executed, page by page, each
page in a folder of its own that holds `examples/` and the files that its `json NAME` blocks show.
Blocks of any other kind (`sh`, `text`) are only shown: what they say needs a cluster or a network.

`python tests/test_docs.py` writes the output of every page anew, and the pages that are generated.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

import rankmuster
from rankmuster.cli.explain import as_markdown
from rankmuster.cli.root import root
from rankmuster.errors import MusterError
from rankmuster.formats import json_program
from rankmuster.formats.json_op import OP_KEYS
from rankmuster.launch import LAUNCHERS, names
from rankmuster.program import REDUCE_OPS

ROOT = Path(__file__).parents[1]
TEXTS = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("docs/*.md")}
TEXTS["README.md"] = ROOT / "README.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What stands for a command that sets up a virtual environment first.
INSTALLED = {"make demo": "sh examples/demo.sh rankmuster"}
# What is another thing in every run, and what stands for it on both sides of a comparison.
VOLATILE = [
    (re.compile(r"\b\d+(\.\d+)? (ms|s)\b"), "# s"),  # times
    (re.compile(r"\bpid \d+ on [\w.-]+"), "pid # on host"),
    (re.compile(r"\S*/tmp\.\w+/"), "/tmp/"),  # the folder that mktemp made
]


class Block(NamedTuple):
    """A fenced block: its kind, the word after it, what it holds and where that stands."""

    kind: str
    name: str
    body: str
    at: int


class Typed(NamedTuple):
    """A command of a console block, and what the page says that it prints."""

    command: str
    shown: str


def blocks(text: str) -> list[Block]:
    return [Block(m[1], m[2] or "", m[3], m.start(3)) for m in FENCE.finditer(text)]


def typed(body: str) -> list[Typed]:
    """The commands of a block; `> ` goes on with the command of the line before."""
    parts = re.findall(r"^\$ (.*\n(?:> .*\n)*)((?:(?!\$ ).*\n)*)", body, re.MULTILINE)
    return [Typed(command.replace("\n> ", "\n").strip(), shown) for command, shown in parts]


def printed(command: str, folder: Path) -> str:
    """What a shell in *folder* prints on either stream."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", INSTALLED.get(command, command)],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def steady(text: str) -> str:
    for pattern, name in VOLATILE:
        text = pattern.sub(name, text)
    return text


def agree(shown: str, output: str) -> bool:
    """Whether a page shows *output*; a line that is … alone stands for any lines."""
    pattern = re.escape(steady(shown)).replace("…\\\n", "(?:.*\n)*")
    return re.fullmatch(pattern, steady(output)) is not None


def prepare(text: str, folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks(text):
        if block.kind == "json" and block.name:
            (folder / block.name).write_text(block.body)


def played(text: str, folder: Path) -> Iterator[tuple[Typed, str]]:
    """Do all that a page says, in its order; yields its commands with what they print."""
    prepare(text, folder)
    scope: dict[str, Any] = {}
    for block in blocks(text):
        if block.kind == "console":
            yield from ((each, printed(each.command, folder)) for each in typed(block.body))
        elif block.kind == "python" and block.name != "jax":
            code = compile("\n" * text[: block.at].count("\n") + block.body, "page", "exec")
            with contextlib.chdir(folder):
                exec(code, scope)


def is_runnable(text: str) -> bool:
    return any(block.kind in {"console", "python"} for block in blocks(text))


def others_run() -> set[str]:
    """The pages that a test of their own executes."""
    tests = "".join(p.read_text() for p in ROOT.glob("tests/**/*.py") if p != Path(__file__))
    return {name for name in TEXTS if f'"{Path(name).name}"' in tests and name != "README.md"}


PAGES = sorted(
    {name for name, path in TEXTS.items() if is_runnable(path.read_text())} - others_run()
)


@pytest.mark.parametrize("name", PAGES)
def test_page(name: str, tmp_path: Path) -> None:
    """What a page types prints what the page shows, and its Python runs."""
    for (command, shown), output in played(TEXTS[name].read_text(), tmp_path):
        assert agree(shown, output), f"$ {command}\n{output}"


@pytest.mark.engines
@pytest.mark.parametrize("name", [n for n in PAGES if "```python jax\n" in TEXTS[n].read_text()])
def test_python_with_jax(name: str, tmp_path: Path) -> None:
    """The blocks that need JAX run too, each by itself: its flags are read but once."""
    for block in blocks(TEXTS[name].read_text()):
        if block.name == "jax":
            subprocess.run(
                [sys.executable, "-c", block.body], cwd=tmp_path, check=True, timeout=120
            )


def shown_only() -> Iterator[list[str]]:
    """What follows `rankmuster` on each line that no test types, up to a comment or a command."""
    for path in TEXTS.values():
        for block in blocks(path.read_text()):
            for line in block.body.splitlines() if block.kind == "sh" else ():
                _, found, arguments = line.partition("rankmuster ")
                if found and not line.startswith("pip "):
                    yield shlex.split(arguments.partition(" -- ")[0], comments=True)


def test_shown_commands_exist() -> None:
    """The commands and options of blocks that are only shown are there."""
    for name, *arguments in shown_only():
        command = root.get_command(click.Context(root), name)
        assert command is not None, name
        known = {option for each in command.params for option in each.opts}
        assert {each for each in arguments if each.startswith("-")} <= known, name


def test_demo_is_what_make_runs() -> None:
    """The README types `make demo`; what the test runs for it is what the Makefile runs."""
    assert "\tsh examples/demo.sh $(RANKMUSTER)\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("name", [*sorted(TEXTS), "CHANGELOG.md", "examples/README.md"])
def test_links_lead_somewhere(name: str) -> None:
    """Every file that a page links to exists."""
    page = ROOT / name
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_reached() -> None:
    """The README leads to every page, straight or over one other."""
    near = set(re.findall(r"\]\((docs/[\w-]+\.md)", TEXTS["README.md"].read_text()))
    far = {f"docs/{each}" for name in near for each in
           re.findall(r"\]\(([\w-]+\.md)", TEXTS[name].read_text())}  # fmt: skip
    assert set(TEXTS) - near - far == {"README.md"}


def test_findings_page() -> None:
    """The page on findings is made of the explanations that `rankmuster explain` prints."""
    assert TEXTS["docs/findings.md"].read_text() == as_markdown()


def test_program_page() -> None:
    """The reference of the JSON program has every key, kind and reduce op."""
    shown = set(re.findall(r"`(\w+)`", TEXTS["docs/programs.md"].read_text()))
    keys = json_program.PROGRAM_KEYS | OP_KEYS | json_program.LOOP_KEYS | json_program.BRANCH_KEYS
    assert (keys | set(json_program.KINDS) | REDUCE_OPS) - shown == set()


def test_bring_up_page() -> None:
    """The page on the bring-up lists every variable that a user may set, and every launcher."""
    shown = set(re.findall(r"`(\w+)`", TEXTS["docs/bring-up.md"].read_text()))
    ours = {name for name in vars(names).values() if str(name).startswith("RANKMUSTER_")}
    assert {name for name in ours if not name.endswith("_FD")} - shown == set()
    assert {each.name for each in LAUNCHERS} - shown == set()


def all_errors(kind: type[MusterError] = MusterError) -> Iterator[type[MusterError]]:
    for each in kind.__subclasses__():
        yield each
        yield from all_errors(each)


def test_errors_page() -> None:
    """The page on errors lists every class that this package raises, with its status."""
    for module in pkgutil.walk_packages(rankmuster.__path__, "rankmuster."):
        if not module.name.startswith(("rankmuster.testing", "rankmuster.__main__")):
            importlib.import_module(module.name)
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", TEXTS["docs/errors.md"].read_text(), re.MULTILINE)
    ours = {each for each in all_errors() if each.__module__.startswith("rankmuster.")}
    assert dict(rows) == {each.__name__: str(each.status.value) for each in ours}


def rewritten(text: str, folder: Path) -> str:
    """A page with what its commands print now, where that is not what it shows."""
    for each, output in played(text, folder):
        if not agree(each.shown, output):
            before = "$ " + each.command.replace("\n", "\n> ") + "\n"
            text = text.replace(before + each.shown, before + output, 1)
    return text


def main() -> None:
    TEXTS["docs/findings.md"].write_text(as_markdown())
    for name in sys.argv[1:] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            TEXTS[name].write_text(rewritten(TEXTS[name].read_text(), Path(folder)))


if __name__ == "__main__":
    main()
