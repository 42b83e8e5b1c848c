"""Options of a run; none of them changes a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from kvcache_sim.base.errors import UsageError

#: Engines: the core, or the specification over the core's store or over its own store.
Engine = Literal["native", "spec", "spec-plain"]


#: Replacement for options of the removed Python engine.
SUCCESSORS = "to compare the core with the specification: engine spec, step by step: engine spec-plain"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run; none of them changes a result.

    Attributes:
        check: Invariants are checked at the end (``cheap``) or at every step boundary (``full``).
        record_window_ns: Start and end in ns, end excluded, of the time whose steps, transfers and
            evictions are kept; None keeps none.
        causes: True to count missed tokens by cause, after the run.
        prefixes: True to keep the global prefix store's entries at the end; ``cache.semantics: tree`` has
            one.
        schedule: True to record the engine's schedule: its figures and digests are part of the summary.
        regret: True to compare each routing choice with the best machine.
        engine: ``native``, the core; ``spec``, the specification in Python over the core's store, slower; or
            ``spec-plain``, the specification over its own store in Python, slower still.
        times: True to keep each request's times in ns, for intervals over requests.
        marks_ns: Times in ns at which counters are kept (``Run.marks``).

    Raises:
        UsageError: A check, engine or option is unknown, or the window is empty.
    """

    check: Literal["cheap", "full"] = "cheap"
    record_window_ns: tuple[int, int] | None = None
    causes: bool = False
    prefixes: bool = False
    schedule: bool = False
    regret: bool = False
    engine: Engine = "native"
    times: bool = False
    marks_ns: tuple[int, ...] = ()

    def __new__(cls, *_: Any, **given: Any) -> RunOptions:
        """Return an empty object; UsageError for a name that is not an option (any more)."""
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise UsageError("no such option", unknown[0], repr(given[unknown[0]]), hint=SUCCESSORS)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            expected = ", ".join(get_args(Engine))
            raise UsageError("unknown engine", where="engine", got=repr(self.engine), expected=expected)
        if self.check not in ("cheap", "full"):
            raise UsageError("unknown check", where="check", got=repr(self.check), expected="cheap or full")
        given: object = self.record_window_ns
        if given is not None and not (
            isinstance(given, tuple) and [type(end) for end in given] == [int, int]
        ):
            expected = "(start, end) in ns, or None"
            raise UsageError("no window", where="record_window_ns", got=repr(given)[:60], expected=expected)
        if self.record_window_ns is not None and self.record_window_ns[0] >= self.record_window_ns[1]:
            window = f"{self.record_window_ns[0]} to {self.record_window_ns[1]} ns"
            raise UsageError(
                "no time to record", where="record_window_ns", got=window, expected="start < end"
            )


#: The native core, checked at the end, without additional recording.
DEFAULT_OPTIONS = RunOptions()
