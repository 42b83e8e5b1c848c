"""``kvsim trace edit``: the same conversations under another handling of their context."""

from __future__ import annotations

from typing import Annotated

from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.notices import remark
from kvcache_sim.cli.trace.options import OutputFile, Rows, TraceFile, print_written


class Edits(Value):
    """The edits, and the lengths of what they add."""

    compact_at: Annotated[
        str, Option(metavar="LENGTH", help="summarise before a longer prompt: 120k, or 60% of the window")
    ] = ""
    window: Annotated[int, Option(min=1, help="tokens of the context window, for percent")] = 200_000
    instruction: Annotated[int, Option(min=1, help="tokens that ask for a summary")] = 500
    summary: Annotated[int, Option(min=1, help="tokens of a summary")] = 2000
    drop_results_older: Annotated[
        int | None, Option(metavar="K", min=0, help="replace all but a prompt's last K results of tools")
    ] = None
    placeholder: Annotated[int, Option(min=1, help="tokens of a replaced result")] = 12


def command(
    trace: TraceFile,
    edits: Edits,
    output: OutputFile = "-",
    force: Annotated[bool, "replace an existing file"] = False,
    *,
    rows: Rows,
) -> None:
    """Edit the context of a trace's conversations: compaction, or old results of tools dropped.

    Arrivals and answers stay as they are. The trace needs the column segments, which trace import writes.

    \b
    Examples:
      kvsim trace edit agents.jsonl --trace-block-size 16 --compact-at 60% -o short.jsonl
      kvsim trace edit agents.jsonl --trace-block-size 16 --drop-results-older 5 -o fewer.jsonl
    """
    import sys
    from pathlib import Path

    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.workload.context_edits import ContextEdit, parse_compact_at
    from kvcache_sim.workload.imports.write import trace_lines
    from kvcache_sim.workload.toolbox.edited import edited
    from kvcache_sim.workload.toolbox.write import write_lines

    if not edits.compact_at and edits.drop_results_older is None:
        raise UsageError("nothing to edit", hint="--compact-at or --drop-results-older")
    edit = ContextEdit(
        compact_at_tokens=parse_compact_at(edits.compact_at, edits.window) if edits.compact_at else None,
        instruction_tokens=edits.instruction,
        summary_tokens=edits.summary,
        kept_results=edits.drop_results_older,
        placeholder_tokens=edits.placeholder,
    )
    read = rows.load(trace)
    requests = list(edited(read, edit))
    if edit.compact_at_tokens is not None:
        made = len(requests) - len(read)
        assumed = f"{edit.instruction_tokens:,}, {edit.summary_tokens:,} and {edit.wrap_tokens:,} tokens"
        remark(f"{made:,} compactions; instruction, summary and what wraps it are assumed: {assumed}")
    if output == "-":
        sys.stdout.writelines(trace_lines(requests))
        return
    write_lines(Path(output), trace_lines(requests), force)
    print_written(len(requests), output, read.block_size)
