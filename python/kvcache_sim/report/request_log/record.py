"""One real request of a log, with the key of its simulated request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A request as a client or an engine logged it; NaN for a time that the log does not have.

    ``number`` is its index in the trace where the log names it; ``started_s`` orders requests that have
    start times only. With neither, the log is in the order of the trace. A ``failed`` request keeps its
    position in that order and has no latencies.
    """

    ttft_s: float = float("nan")
    e2e_s: float = float("nan")
    output_tokens: float = 0
    number: int | None = None
    started_s: float | None = None
    failed: bool = False
    #: Prompt tokens, and those of them that a cache served; NaN where the log does not say.
    input_tokens: float = float("nan")
    cached_tokens: float = float("nan")
