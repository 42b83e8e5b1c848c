"""The options that every subcommand on trace files shares, and the two ends: reading and writing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.run_options import TURNS, Turns

if TYPE_CHECKING:
    from kvcache_sim.workload.readers import ReadSettings
    from kvcache_sim.workload.readers.stream import RowWindows
    from kvcache_sim.workload.toolbox.windowed import Windowed
    from kvcache_sim.workload.trace import Trace

TraceFile = Annotated[str, Argument(metavar="TRACE", help="trace file; - is standard input")]
AnswerTokens = Annotated[
    int | None, Option(min=1, help="for chats without an answer or max_tokens: tokens of the answer")
]
OnBadRow = Annotated[str, "error, or skip and count"]
OutputFile = Annotated[
    str,
    Option(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write (.gz compresses, .parquet is Parquet); - is standard output",
    ),
]
Force = Annotated[bool, "replace an existing file"]


class Ids(Value):
    """The ids of a trace."""

    trace_block_size: Annotated[int | None, Option(min=1, help="tokens an id; default: the format's own")] = (
        None
    )
    trace_format: Annotated[str | None, "name of the format; default: detected"] = None
    turns: Annotated[Turns | None, TURNS] = None

    def settings(self, on_bad_row: str = "error", time_order: str = "error") -> ReadSettings:
        """Return the read settings of a tool: rows as they are, nothing filled in, nothing dropped."""
        from kvcache_sim.workload.readers import ReadSettings

        return ReadSettings(
            block_size=self.trace_block_size,
            format=self.trace_format,
            turns=self.turns,
            on_bad_row=on_bad_row,  # type: ignore[arg-type]  # ReadSettings refuses other words by name
            time_order=time_order,  # type: ignore[arg-type]
            missing_ids="leave",
            keep_unknown=True,
        )


class Rows(Ids):
    """The rows of a trace, and rows that are out of order or wrong."""

    on_bad_row: OnBadRow = "error"
    time_order: Annotated[str, "a row earlier than the one above: error, sort, keep"] = "error"

    @property
    def reading(self) -> ReadSettings:
        """The reader's settings."""
        return self.settings(self.on_bad_row, self.time_order)

    def load(self, path: str) -> Trace:
        """Return a trace, its warnings printed on stderr."""
        return load(path, self.reading)


def load(path: str, reading: ReadSettings) -> Trace:
    """Return a trace, its warnings printed on stderr."""
    from kvcache_sim.workload.readers import read_trace

    trace = read_trace(path, settings=reading)
    for warning in trace.warnings:
        warn(warning)
    return trace


class Output(Value):
    """The trace to write."""

    output: OutputFile = "-"
    force: Force = False

    def windows(self, path: str, reading: ReadSettings) -> Trace | RowWindows:
        """Return a trace as ``load``, a long one in windows: its warnings are printed after it is written.

        While it is written to a file, stderr shows how far it is read.
        """
        from kvcache_sim.cli.reading import Reading
        from kvcache_sim.workload.readers.read import open_windows
        from kvcache_sim.workload.trace import Trace

        trace = open_windows(path, reading)
        if isinstance(trace, Trace):
            for warning in trace.warnings:
                warn(warning)
        elif self.output != "-":
            trace.watch(Reading(path))
        return trace

    def save(self, trace: Trace | Windowed) -> None:
        """Write a trace as Mooncake JSONL or Parquet, whole or not at all; print the next command."""
        from kvcache_sim.cli.reading import clear_line
        from kvcache_sim.workload.toolbox.write import mooncake_lines, named_parts, write_lines
        from kvcache_sim.workload.trace import Trace

        if self.output.endswith(".parquet"):
            from kvcache_sim.workload.toolbox.parquet import write_parquet

            parts = named_parts(trace) if isinstance(trace, Trace) else trace.named_parts()
            write_parquet(Path(self.output), parts, trace.block_size, self.force)
        elif self.output == "-":
            sys.stdout.writelines(mooncake_lines(trace) if isinstance(trace, Trace) else trace.lines())
        else:
            lines = mooncake_lines(trace) if isinstance(trace, Trace) else trace.lines()
            write_lines(Path(self.output), lines, self.force)
        if not isinstance(trace, Trace):
            clear_line()
            for warning in trace.warnings:
                warn(warning)
        if self.output != "-":
            requests = len(trace) if isinstance(trace, Trace) else trace.requests
            print_written(requests, self.output, trace.block_size)


def print_written(requests: int, output: str, block_size: int, kind: str = "") -> None:
    """Print the number of requests written and, as the next command, their run, on stderr."""
    from kvcache_sim.report.plain_table import next_line

    print(f"{requests:,} requests{kind} in {output}", file=sys.stderr)
    blocks = () if block_size == 512 else ("--set", f"trace.block_size={block_size}")
    print(next_line("simulate", output, *blocks), file=sys.stderr)
