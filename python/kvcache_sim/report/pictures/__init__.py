"""The pictures, one a file; this table is the order of the report and the list of ``kvsim plot``.

- ``split_distribution``  cumulative distributions of latencies, split into classes of requests
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of picture: its function, a line of help, and the question of users that it answers.

    ``drawn_by`` is a module with ``draw(runs) -> Picture | NothingToDraw``, or ``module:function``.
    """

    drawn_by: str
    help: str
    question: str


#: kind → its row, in the order in which users ask.
PICTURES: dict[str, Kind] = {
    "hit-curve": Kind(
        "hit_curve",
        "hit rate over cache size, with this run, the knee and the upper bound",
        "What is the hit rate at each size, and where is the knee?",
    ),
    "ttft-by-tier": Kind(
        "split_distribution:ttft_by_tier",
        "TTFT split by the slowest tier a request read from",
        "Does a lower tier help TTFT, or hurt?",
    ),
    "machines": Kind(
        "machines",
        "machine × prefix: where requests that share a prefix were served",
        "What did the router do with shared prefixes?",
    ),
    "misses": Kind(
        "misses", "prompt tokens not served from a cache, by cause", "Why were prompt tokens missed?"
    ),
    "channels": Kind(
        "channels",
        "use of each channel over time, and waiting on it",
        "How busy are the links and drives; is loading slower than recomputing?",
    ),
    "occupancy": Kind(
        "occupancy", "blocks of each tier over time, by state", "What is written where, and when is it full?"
    ),
    "sessions": Kind(
        "sessions",
        "cached share of a session's prefix at its next turn, by gap and tier",
        "Does the KV survive think time and tool calls?",
    ),
    "survival": Kind(
        "survival",
        "share of a session's context that survives its idle time",
        "How long is a context worth keeping?",
    ),
    "waterfall": Kind(
        "waterfall", "parts of TTFT at p50, p90 and p99", "Where does the time to first token go?"
    ),
    "ttft": Kind(
        "split_distribution:ttft", "TTFT split by full hit, partial hit and miss", "Who waits how long?"
    ),
    "queue": Kind(
        "queue", "sequences waiting, running and loading over time", "When does TTFT spike: is it the queue?"
    ),
    "fleet": Kind(
        "fleet",
        "hit rate and attainment by window, with machines that came, went or failed",
        "What does a fault cost, and for how long?",
    ),
    "tpot": Kind(
        "split_distribution:tpot",
        "TPOT split by full hit, partial hit and miss",
        "How fast do the tokens come?",
    ),
}
