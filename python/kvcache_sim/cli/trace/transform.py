"""Trace to trace: the subcommands of one transform, their reading and writing options declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace import options

if TYPE_CHECKING:
    from kvcache_sim.workload.readers import ReadSettings
    from kvcache_sim.workload.readers.stream import RowWindows
    from kvcache_sim.workload.toolbox.windowed import Windowed
    from kvcache_sim.workload.trace import Trace


class Read:
    """Reads the trace that the command line names."""

    def __init__(self, path: str, settings: ReadSettings, output: str) -> None:
        self.path, self._settings, self._output = path, settings, output

    def __call__(self) -> Trace:
        """Return it whole."""
        return options.load(self.path, self._settings)

    def windows(self) -> Trace | RowWindows:
        """Return it some rows at a time if it is long."""
        return options.load_windows(self.path, self._settings, self._output)


def _both_ends(
    trace: options.TraceFile,
    output: options.Output = "-",
    force: options.Force = False,
    trace_block_size: options.TraceBlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> tuple[Read, Callable[[Trace | Windowed], None]]:
    reading = options.settings(trace_block_size, trace_format, on_bad_row, time_order)
    return Read(trace, reading, output), lambda changed: options.save(changed, output, force)


#: Types that are imported with the first use of a trace.
_LATER = {"Trace": object, "Windowed": object}


def transform(change: Callable[..., Trace | Windowed]) -> Callable[..., None]:
    """Return the command of ``change(read, *its own options)``, which returns the trace to write.

    It has the options of ``change`` and those of every transform: where to read, how, and where to write.
    """
    options = list(inspect.signature(change, eval_str=True, locals=_LATER).parameters.values())[1:]
    first, *ends = inspect.signature(_both_ends, eval_str=True, locals=_LATER).parameters.values()

    def command(**given: object) -> None:
        chosen = {option.name: given.pop(option.name) for option in options}
        read, write = _both_ends(**given)  # type: ignore[arg-type]
        write(change(read, **chosen))

    command.__doc__ = change.__doc__
    command.__signature__ = inspect.Signature([first, *options, *ends])  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in (first, *options, *ends)}
    return command


@transform
def head(
    read: Read,
    requests: Annotated[int, typer.Option("-n", help="how many requests")] = 10,
) -> Trace:
    """Write the first requests of a trace; they are its own rows, ids included.

    \b
    Examples:
      kvsim trace head conversation_trace.jsonl -n 1000 -o first.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    return transforms.head(read(), requests)


@transform
def slice_(
    read: Read,
    from_: Annotated[str, typer.Option("--from", help="start of the window, such as 10min")] = "0s",
    to: Annotated[str, typer.Option("--to", help="end of the window, itself outside")] = "1h",
) -> Trace:
    """Write the requests that arrive in a window of time, which becomes time 0.

    Closed-loop requests go with the request they wait for.

    \b
    Examples:
      kvsim trace slice conversation_trace.jsonl --from 10min --to 20min -o window.jsonl
    """
    from kvcache_sim.base.units import parse_time_ns
    from kvcache_sim.workload.toolbox import transforms

    start, end = parse_time_ns(from_), parse_time_ns(to)
    return transforms.cut(read(), start, end)


@transform
def scale(
    read: Read,
    speed: Annotated[str, typer.Option(help="2 is twice as fast; 0.5 and 3/2 are exact, too")] = "1",
) -> Trace:
    """Divide every arrival and think time by a speed, exactly.

    \b
    Examples:
      kvsim trace scale conversation_trace.jsonl --speed 2 -o twice.jsonl
      kvsim trace scale conversation_trace.jsonl --speed 3/2 -o faster.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    factor = transforms.parse_speed(speed)
    return transforms.scale(read(), factor)


@transform
def rechunk(
    read: Read,
    to: Annotated[
        int, typer.Option("--to", "--block-size", help="new tokens an id, a divisor of the old")
    ] = 16,
) -> Trace | Windowed:
    """Write a trace in smaller blocks, each old block a run of new ones.

    \b
    Examples:
      kvsim trace rechunk conversation_trace.jsonl --to 16 -o b16.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms, windowed
    from kvcache_sim.workload.trace import Trace

    given = read.windows()
    return transforms.rechunk(given, to) if isinstance(given, Trace) else windowed.rechunked(given, to)


@transform
def sample(
    read: Read,
    fraction: Annotated[float, typer.Option(help="share of the sessions or prefix groups to keep")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="chooses them")] = 0,
) -> Trace:
    """Write whole sessions, or whole groups of prompts that share a prefix.

    \b
    Examples:
      kvsim trace sample conversation_trace.jsonl --fraction 0.1 --seed 1 -o tenth.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import sample as sampled

    return sampled(read(), fraction, seed)


@transform
def repeat(
    read: Read,
    times: Annotated[int, typer.Option("-n", "--times", help="how often")] = 2,
    gap: Annotated[str, typer.Option(help="time between the last arrival and the next copy")] = "1s",
) -> Trace | Windowed:
    """Write a trace several times over, each copy with blocks and sessions of its own.

    \b
    Examples:
      kvsim trace repeat conversation_trace.jsonl -n 3 --gap 3s -o three.jsonl
    """
    from kvcache_sim.base.units import parse_time_ns
    from kvcache_sim.workload.toolbox import transforms, windowed
    from kvcache_sim.workload.trace import Trace

    gap_ns = parse_time_ns(gap)
    given = read() if read.path == "-" else read.windows()
    if isinstance(given, Trace):
        return transforms.repeat(given, times, gap_ns)
    return windowed.repeated(given, read.windows, times, gap_ns)


@transform
def anonymise(read: Read) -> Trace:
    """Number ids and sessions by first appearance, start at time 0, drop unknown members.

    Lengths, sharing and distances of time stay: a simulation of the result is the same.

    \b
    Examples:
      kvsim trace anonymise mine.jsonl -o public.jsonl
    """
    from kvcache_sim.workload.toolbox import transforms

    return transforms.anonymise(read())
