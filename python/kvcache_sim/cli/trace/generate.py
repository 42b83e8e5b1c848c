"""``kvsim trace generate``: make a workload and write it as Mooncake JSONL."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

from kvcache_sim.base.output import new_file
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.trace import options


def command(
    kind: Annotated[
        str, Argument(help="conversational, repetitive, diverse, few-shot, overflow, agentic or rag")
    ],
    output: options.OutputFile = "-",
    requests: Annotated[int, "how many requests"] = 1000,
    seed: Annotated[int, Option(min=0, help="every random number comes from it")] = 0,
    set_: Annotated[list[str] | None, Option("--set", help="KEY=VALUE of the workload")] = None,
    force: options.Force = False,
) -> None:
    """Make a workload and write it as Mooncake JSONL, with session_id and turn where it has sessions.

    \b
    Examples:
      kvsim trace generate conversational --requests 500 --set think_time=2s -o chat.jsonl
      kvsim trace generate repetitive --set instructions=8 --set arrivals.rate_per_s=20 -o tasks.jsonl
      kvsim trace generate few-shot --set target_hit_ratio=0.6 --set block_size=16 > shots.jsonl
    """
    from dataclasses import replace

    from kvcache_sim.scenario.yaml_tree import Tree, apply_override
    from kvcache_sim.workload.generate import settings_of, write_jsonl
    from kvcache_sim.workload.generate.build import SEARCH_REQUESTS, assemble, at_target, has_target, reached

    tree = Tree()
    for assignment in set_ or ():
        apply_override(tree, assignment)
    settings = settings_of(kind, {"requests": requests, **tree.values})
    if has_target(settings):
        settings = at_target(settings, seed)
        part = replace(settings, requests=min(settings.requests, SEARCH_REQUESTS))
        print(reached(settings, assemble(part, seed, "")), file=sys.stderr)
    if output == "-":
        write_jsonl(settings, seed, sys.stdout)
        return
    with new_file(Path(output), force) as file:
        text = TextIOWrapper(file, encoding="ascii")
        rows = write_jsonl(settings, seed, text)
        text.detach()  # flushed; the caller closes the file
    options.print_written(rows, output, settings.block_size)
