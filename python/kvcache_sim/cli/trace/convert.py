"""``kvsim trace convert``: any known format to Mooncake JSONL."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    fill_ids: Annotated[bool, "give rows without ids ids of their own"] = False,
    bytes_per_token: Annotated[
        int | None, "for lengths in bytes and texts: bytes a token (4, an estimate)"
    ] = None,
    tokenizer: Annotated[str | None, "for texts: path of a tokenizer.json"] = None,
    answer_tokens: options.AnswerTokens = None,
    *,
    output: options.Output,
    rows: options.Rows,
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

    reading = replace(
        rows.reading, bytes_per_token=bytes_per_token, tokenizer=tokenizer, answer_tokens=answer_tokens
    )
    if fill_ids:
        output.save(fill_missing_ids(options.load(trace, reading)))
        return
    given = output.windows(trace, reading)
    output.save(given if isinstance(given, Trace) else converted(given))
