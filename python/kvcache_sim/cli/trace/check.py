"""``kvsim trace check``: all errors and oddities of a trace."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

from kvcache_sim.base.errors import EXIT_OK, EXIT_TRACE, TraceError
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    output_format: Annotated[Literal["text", "json"], Option("--format")] = "text",
    *,
    ids: options.Ids,
) -> int:
    """Print every problem with file, line and column, and counts by kind; exit 3 if there is any.

    \b
    Examples:
      kvsim trace check conversation_trace.jsonl
      kvsim trace check mine.jsonl.gz --format json
    """
    from kvcache_sim.workload.readers import read_report
    from kvcache_sim.workload.toolbox.check import judge

    try:
        report = read_report(trace, settings=ids.settings(on_bad_row="skip"))
    except TraceError as error:
        if output_format == "json":
            print(json.dumps({"problems": [str(error)], "counts": {}, "remarks": []}, indent=2))
        else:
            print(error)
        return EXIT_TRACE
    verdict = judge(report)
    if output_format == "json":
        print(json.dumps(verdict.as_dict(), indent=2))
    else:
        for line in verdict.lines():
            print(line)
    print(f"{trace}: {verdict.summary()}", file=sys.stderr)
    return EXIT_TRACE if verdict.counts else EXIT_OK
