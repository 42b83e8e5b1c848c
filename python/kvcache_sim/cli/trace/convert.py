"""``kvsim trace convert``: any known format to Mooncake JSONL."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    fill_ids: Annotated[
        bool, typer.Option("--fill-ids", help="give rows without ids ids of their own")
    ] = False,
    bytes_per_token: Annotated[
        int | None, typer.Option(help="for lengths in bytes and texts: bytes a token (4, an estimate)")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="for texts: path of a tokenizer.json")] = None,
    answer_tokens: options.AnswerTokens = None,
    output: options.Output = "-",
    force: options.Force = False,
    trace_block_size: options.TraceBlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write a trace of any known format as Mooncake JSONL.

    \b
    Examples:
      kvsim trace convert weka_agentic_dev.jsonl.gz -o weka.jsonl.gz
      kvsim trace convert azure2023_conv.csv --fill-ids -o azure.jsonl
    """
    from kvcache_sim.workload.missing_ids import fill_missing_ids
    from kvcache_sim.workload.toolbox.windowed import converted
    from kvcache_sim.workload.trace import Trace

    reading = options.settings(trace_block_size, trace_format, on_bad_row, time_order)
    reading = replace(
        reading, bytes_per_token=bytes_per_token, tokenizer=tokenizer, answer_tokens=answer_tokens
    )
    if fill_ids:
        options.save(fill_missing_ids(options.load(trace, reading)), output, force)
        return
    given = options.load_windows(trace, reading, output)
    options.save(given if isinstance(given, Trace) else converted(given), output, force)
