"""Trace to trace: the command around a transform, its reading and writing options declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kvcache_sim.cli.trace import options

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace

#: Reads the trace that the command line names.
Read = Callable[[], "Trace"]


def _both_ends(
    trace: options.TraceFile,
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> tuple[Read, Callable[[Trace], None]]:
    reading = options.settings(block_size, trace_format, on_bad_row, time_order)
    return partial(options.load, trace, reading), lambda changed: options.save(changed, out, force)


def transform(change: Callable[..., Trace]) -> Callable[..., None]:
    """Return the command of ``change(read, *its own options)``, which returns the trace to write.

    It has the options of ``change`` and those of every transform: where to read, how, and where to write.
    """
    own = list(inspect.signature(change, eval_str=True, locals={"Trace": object}).parameters.values())[1:]
    first, *ends = inspect.signature(_both_ends, eval_str=True, locals={"Trace": object}).parameters.values()

    def command(**given: object) -> None:
        chosen = {option.name: given.pop(option.name) for option in own}
        read, write = _both_ends(**given)  # type: ignore[arg-type]
        write(change(read, **chosen))

    command.__doc__ = change.__doc__
    command.__signature__ = inspect.Signature([first, *own, *ends])  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in (first, *own, *ends)}
    return command
