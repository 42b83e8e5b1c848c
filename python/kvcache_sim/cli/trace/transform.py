"""Trace to trace: the subcommands of one transform."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.trace.options import Output, Rows, TraceFile


def head(
    trace: TraceFile,
    requests: Annotated[int, Option("-n", help="how many requests")] = 10,
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Write the first requests of a trace; they are its own rows, ids included.

    \b
    Examples:
      kvsim trace head conversation_trace.jsonl -n 1000 -o first.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    output.save(transforms.head(rows.load(trace), requests))


def slice_(
    trace: TraceFile,
    from_: Annotated[str, Option("--from", help="start of the window, such as 10min")] = "0s",
    to: Annotated[str, "end of the window, itself outside"] = "1h",
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Write the requests that arrive in a window of time, which becomes time 0.

    Closed-loop requests go with the request they wait for.

    \b
    Examples:
      kvsim trace slice conversation_trace.jsonl --from 10min --to 20min -o window.jsonl
    """
    from kvcache_sim.base.units import parse_time_ns
    from kvcache_sim.workload.toolbox import transforms

    start, end = parse_time_ns(from_), parse_time_ns(to)
    output.save(transforms.cut(rows.load(trace), start, end))


def scale(
    trace: TraceFile,
    speed: Annotated[str, "2 is twice as fast; 0.5 and 3/2 are exact, too"] = "1",
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Divide every arrival and think time by a speed, exactly.

    \b
    Examples:
      kvsim trace scale conversation_trace.jsonl --speed 2 -o twice.jsonl
      kvsim trace scale conversation_trace.jsonl --speed 3/2 -o faster.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    factor = transforms.parse_speed(speed)
    output.save(transforms.scale(rows.load(trace), factor))


def rechunk(
    trace: TraceFile,
    to: Annotated[int, Option("--to", "--block-size", help="new tokens an id, a divisor of the old")] = 16,
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Write a trace in smaller blocks, each old block a run of new ones.

    \b
    Examples:
      kvsim trace rechunk conversation_trace.jsonl --to 16 -o b16.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms, windowed
    from kvcache_sim.workload.trace import Trace

    given = output.windows(trace, rows.reading)
    output.save(transforms.rechunk(given, to) if isinstance(given, Trace) else windowed.rechunked(given, to))


def sample(
    trace: TraceFile,
    fraction: Annotated[float, "share of the sessions or prefix groups to keep"] = 0.1,
    seed: Annotated[int, Option(min=0, help="chooses them")] = 0,
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Write whole sessions, or whole groups of prompts that share a prefix.

    \b
    Examples:
      kvsim trace sample conversation_trace.jsonl --fraction 0.1 --seed 1 -o tenth.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import sample as sampled

    output.save(sampled(rows.load(trace), fraction, seed))


def repeat(
    trace: TraceFile,
    times: Annotated[int, Option("-n", "--times", help="how often")] = 2,
    gap: Annotated[str, "time between the last arrival and the next copy"] = "1s",
    *,
    output: Output,
    rows: Rows,
) -> None:
    """Write a trace several times over, each copy with blocks and sessions of its own.

    \b
    Examples:
      kvsim trace repeat conversation_trace.jsonl -n 3 --gap 3s -o three.jsonl
    """
    from kvcache_sim.base.units import parse_time_ns
    from kvcache_sim.workload.toolbox import transforms, windowed
    from kvcache_sim.workload.trace import Trace

    gap_ns = parse_time_ns(gap)
    again = partial(output.windows, trace, rows.reading)
    given = rows.load(trace) if trace == "-" else again()
    if isinstance(given, Trace):
        output.save(transforms.repeat(given, times, gap_ns))
    else:
        output.save(windowed.repeated(given, again, times, gap_ns))


def anonymise(trace: TraceFile, output: Output, rows: Rows) -> None:
    """Number ids and sessions by first appearance, start at time 0, drop unknown members.

    Lengths, sharing and distances of time stay: a simulation of the result is the same.

    \b
    Examples:
      kvsim trace anonymise mine.jsonl -o public.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    output.save(transforms.anonymise(rows.load(trace)))
