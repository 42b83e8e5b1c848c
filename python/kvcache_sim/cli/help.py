"""``kvsim help``: the help of a verb, or a page on a topic."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated

import typer

from kvcache_sim.base.errors import EXIT_CODES, UsageError
from kvcache_sim.cli import VERBS
from kvcache_sim.cli.commands import commands
from kvcache_sim.cli.declared import Argument
from kvcache_sim.cli.verb import verb_app

app = verb_app()


def _exit_codes() -> str:
    return "\n".join(["Exit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES.items())])


def _units() -> str:
    return """Units: every size, rate and time carries its unit; a bare number is refused.
  size  B kB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024): 80GiB, 16GB;
  rate  a size a second in bytes (25GB/s) or in bits (400Gb/s, 400Gbps);
  time  ns us ms s m h d: 250us, 3s, 1.5ms.
A tier's capacity may also be blocks (16384 blocks), tokens (262144 tokens) or unbounded."""


def _channels() -> str:
    return """Channels: the links that carry KV. Edges that name one channel share its
bandwidth; edges on different channels do not slow each other down.

inside a machine
  gpu->cpu, cpu->gpu, cpu->disk, disk->cpu    of every machine;
  0:cpu->gpu                                  of machine 0 alone.
between machines
  1:cpu->0:cpu    reads of machine 0 from machine 1, its cpu or its disk;
  0:remote->cpu   all reads of machine 0 from others;
  1:cpu->remote   all reads of others from machine 1;
  remote->cpu     all reads between machines; cpu->remote is the same;
  1:gpu->0:gpu    hand-overs of machine 1 to machine 0 (pools); the other
                  forms have gpu for cpu too.

The most specific edge decides. The scope of a channel: one per machine
(machine, the default), one for all machines (cluster), or one per pair (pair).
Two machines that read from each other over one wire contend.

  channels:
    wire:
      bandwidth: 100Gb/s
      edges: ["1:cpu->0:cpu", "0:cpu->1:cpu"]

With one channel per edge they do not (scenarios/two-machines.yaml)."""


def _scenario() -> str:
    from kvcache_sim.scenario.key_list import key_lines

    head = "Keys of a scenario, and of --set: name, default (* must be given), meaning."
    return "\n".join([head, *key_lines()])


def _schema() -> str:
    from kvcache_sim.scenario.json_schema import json_schema

    return json.dumps(json_schema(), indent=2)


#: topic → the page. Verbs are topics too.
TOPICS: dict[str, Callable[[], str]] = {
    "channels": _channels,
    "exit-codes": _exit_codes,
    "scenario": _scenario,
    "schema": _schema,
    "units": _units,
}


def _pages_by_word() -> dict[str, Callable[[str], str]]:
    """Return the topics that may be narrowed to a word."""
    from kvcache_sim.metrics.glossary import glossary_page, metrics_page

    return {"glossary": glossary_page, "metrics": metrics_page}


def _key_lines() -> Iterator[str]:
    from kvcache_sim.scenario.key_list import key_lines
    from kvcache_sim.scenario.policy_kinds import POLICY_KINDS

    yield from key_lines()
    for key, kind in POLICY_KINDS.items():
        yield f"{'.'.join(map(str, key))} is one of {', '.join(kind.names)}: kvsim policies show NAME"


def _column_lines() -> Iterator[str]:
    """Yield each column of a run's tables, and each cause of a miss, with its meaning."""
    from kvcache_sim.metrics import columns
    from kvcache_sim.replay.miss_causes import MISS_CAUSES

    tables = {
        "requests": {**columns.REQUEST_COLUMNS, **columns.MISS_COLUMNS, **columns.SLO_COLUMNS},
        "events": columns.EVENT_COLUMNS,
        "series": columns.SERIES_COLUMNS,
    }
    for table, of_table in tables.items():
        yield from (f"{table}.{name} ({one.dtype}): {one.meaning}" for name, one in of_table.items())
    for cause in MISS_CAUSES:
        yield f"cause of a miss, {cause.name.replace('_', ' ')} ({cause.name}): {cause.meaning}"


def _name_lines() -> Iterator[str]:
    """Yield the names of policies, presets, formats, generators and of the entries of the catalogs."""
    from kvcache_sim.model.catalog import entry_names
    from kvcache_sim.policies.table import POLICIES
    from kvcache_sim.scenario.presets import preset_names
    from kvcache_sim.workload.generate import KINDS
    from kvcache_sim.workload.readers.format import FORMATS

    for verb in ("models", "gpus", "channels", "step-times"):
        for name in entry_names(verb.replace("-", "_")):
            yield f"{name}: kvsim {verb} show {name}"
    yield from (f"{row.example} (policy): {row.description}" for row in POLICIES)
    yield from (f"preset:{name}: kvsim init preset:{name}" for name in preset_names())
    yield from (f"{name} (trace format): {one.help}" for name, one in FORMATS.items())
    yield from (f"{name} (workload.kind): kvsim trace generate {name}" for name in KINDS)


def _option_lines() -> Iterator[str]:
    """Yield each verb, and its options and arguments with the words that they take."""
    for line, command in commands():
        yield f"kvsim {line}: {(command.help or '').strip().partition(chr(10))[0]}"
        for parameter in command.params:
            meaning = " ".join((getattr(parameter, "help", "") or "").split())
            words = "|".join(re.findall(r"'([^']*)'", str(parameter.type_descriptor.annotation)))
            yield f"kvsim {line} {', '.join(parameter.opts)}{f' <{words}>' if words else ''}: {meaning}"


@cache
def _lines() -> tuple[tuple[str, ...], ...]:
    """Return all lines, by kind."""
    return tuple(tuple(lines()) for lines in (_key_lines, _column_lines, _name_lines, _option_lines))


def _page_of_word(word: str) -> str:
    """Return the keys, figures, terms, columns, names and options that have a word; raises UsageError."""
    pages = ["\n".join(line for line in lines if word.lower() in line.lower()) for lines in _lines()]
    pages += [page for make in _pages_by_word().values() if "\n" in (page := make(word))]
    if not any(pages):
        topics = ", ".join(["metrics", "glossary", *TOPICS, *VERBS])
        raise UsageError(
            f"no help on {word!r}", hint=f"topics: {topics}; or a word of a key, value or figure"
        )
    return "\n\n".join(filter(None, pages))


@app.command()
def help_topic(
    topic: Annotated[
        str,
        Argument(
            help="a verb, metrics, glossary, scenario, schema, units, channels, exit-codes, or any word",
            metavar="[TOPIC]",
        ),
    ] = "",
    word: Annotated[
        str, Argument(help="with metrics or glossary: only what has this word", metavar="[WORD]")
    ] = "",
) -> int:
    """Explain a verb or a topic.

    \b
    Examples:
      kvsim help simulate
      kvsim help scenario
      kvsim help metrics ttft
      kvsim help router
      kvsim help exit-codes
    """
    from kvcache_sim.cli.main import dispatch

    if topic in ("metrics", "glossary"):
        page = _pages_by_word()[topic](word)
        if "\n" not in page:
            raise UsageError(f"nothing in {topic} has this word", got=repr(word))
        typer.echo(page)
        return 0
    if word:
        raise UsageError("a word narrows metrics and glossary only", where=topic, got=repr(word))
    if topic in TOPICS:
        typer.echo(TOPICS[topic]())
        return 0
    if topic and topic not in VERBS:
        typer.echo(_page_of_word(topic))
        return 0
    return dispatch([topic, "--help"] if topic else ["--help"])
