"""``kvsim help``: the help of a verb, or a page on a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from kvcache_sim.cli import VERBS
from kvcache_sim.cli.verb import verb_app
from kvcache_sim.errors import EXIT_CODES, UsageError

app = verb_app()


def _exit_codes() -> str:
    return "\n".join(["Exit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())])


def _units() -> str:
    return """Units: every size, rate and time carries its unit; a bare number is refused.
  size  B kB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024): 80GiB, 16GB
  rate  a size a second in bytes (25GB/s) or in bits (400Gb/s, 400Gbps)
  time  ns us ms s m h d: 250us, 3s, 1.5ms
A tier's capacity may also be a number of blocks (16384 blocks) or unbounded."""


def _scenario() -> str:
    from kvcache_sim.scenario.key_list import key_lines

    head = "Keys of a scenario, and of --set: name, default (* must be given), meaning."
    return "\n".join([head, *key_lines()])


#: topic → the page. Verbs are topics too.
TOPICS: dict[str, Callable[[], str]] = {"exit-codes": _exit_codes, "scenario": _scenario, "units": _units}


@app.command()
def help_topic(
    topic: Annotated[
        str, typer.Argument(help="a verb, exit-codes, scenario or units", metavar="[TOPIC]")
    ] = "",
) -> int:
    """Explain a verb or a topic.

    \b
    Examples:
      kvsim help simulate
      kvsim help scenario
      kvsim help exit-codes
    """
    from kvcache_sim.cli.main import dispatch

    if topic in TOPICS:
        typer.echo(TOPICS[topic]())
        return 0
    if topic and topic not in VERBS:
        raise UsageError(f"no help on {topic!r}", hint=f"topics: {', '.join([*TOPICS, *VERBS])}")
    return dispatch([topic, "--help"] if topic else ["--help"])
