"""``kvsim trace merge``: several traces as one."""

from __future__ import annotations

from typing import Annotated

from kvcache_sim.cli.declared import Argument
from kvcache_sim.cli.trace import options


def command(
    traces: Annotated[list[str], Argument(metavar="TRACE...", help="trace files")],
    output: options.Output,
    rows: options.Rows,
) -> None:
    """Write the requests of several traces in order of arrival; they share no block and no session.

    \b
    Examples:
      kvsim trace merge chat.jsonl tools.jsonl -o both.jsonl
    """
    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.workload.toolbox.transforms import merge

    if traces.count("-") > 1:
        raise UsageError("standard input can be read once", where="-")
    output.save(merge([rows.load(path) for path in traces]))
