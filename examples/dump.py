"""Write the HLO of the training step, and of its variants, as JAX prints it.

    python examples/dump.py                      # every text below, into examples/
    python examples/dump.py --only step --to /tmp

The texts are XLA's optimised and scheduled modules, untouched. One option of JAX keeps them alike
on every machine: source files are named from `examples/` on, without the folders before it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
from train_step import Config, example_arguments, train_step

HERE = Path(__file__).parent
BEFORE_EXAMPLES = r"^.*[/\\](?=examples[/\\])"

VARIANTS = {
    "step": Config(),
    "step_other_rows": Config(rows=6),
    "step_swapped": Config(clip="bucket"),
    "step_other_reduce": Config(norm="max"),
}


def hlo_of(config: Config) -> str:
    """The optimised, scheduled HLO text of one step."""
    jax.config.update("jax_hlo_source_file_canonicalization_regex", BEFORE_EXAMPLES)
    arguments = jax.eval_shape(lambda: example_arguments(config))
    text = train_step(config).lower(*arguments).compile().as_text()
    assert text is not None
    return text


def main() -> None:
    """Write the chosen texts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=VARIANTS, help="one program instead of all")
    parser.add_argument("--to", type=Path, default=HERE, help="folder to write into")
    options = parser.parse_args()
    for name in [options.only] if options.only else VARIANTS:
        path = options.to / f"{name}.hlo"
        path.write_text(hlo_of(VARIANTS[name]))
        print(path)


if __name__ == "__main__":
    main()
