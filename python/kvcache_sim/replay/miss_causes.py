"""The causes of a miss, each with its meaning and the kinds of runs that report it."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.base.values import Value

#: Reporters of causes: replays without time (``kvsim cachesim``), or timed runs (``kvsim simulate --causes``,
#: ``kvsim explain``).
Reporter = Literal["replay", "timed"]


class MissCause(Value):
    """One cause of a miss: every missed prompt token has exactly one cause."""

    name: str
    #: One sentence, for tables and pictures.
    meaning: str
    reported_by: frozenset[Reporter]


_BOTH: frozenset[Reporter] = frozenset({"replay", "timed"})
_TIMED: frozenset[Reporter] = frozenset({"timed"})

#: Every cause, in the order of the columns. ``rust/core/src/causes`` has the rules, under the same names in
#: the same order (``_core.MISS_CAUSES``).
MISS_CAUSES: tuple[MissCause, ...] = (
    MissCause(
        "never_seen",
        "no earlier prompt had the block; the prompt is new, or continues an earlier one",
        _BOTH,
    ),
    MissCause(
        "diverged",
        "no earlier prompt had the block, and others diverge from the prompt at this point",
        _BOTH,
    ),
    MissCause("evicted", "it was in the cache and was evicted, or lies behind a block that was", _BOTH),
    MissCause(
        "shorter",
        "the end of the prompt, which fills no block that may hit: the last token is always computed",
        _BOTH,
    ),
    MissCause("not_ready", "another request was still computing it on the same machine", _TIMED),
    MissCause("elsewhere", "only other machines have had it", _TIMED),
    MissCause(
        "not_admitted",
        "it was shown before, but the cache did not take it, or keeps it out of reach",
        _BOTH,
    ),
    MissCause(
        "window_moved_on",
        "other layers had it, but layers with a window had released their blocks there",
        _BOTH,
    ),
    MissCause(
        "no_checkpoint",
        "other layers had it, but layers with a state kept no checkpoint there",
        _BOTH,
    ),
    MissCause(
        "partial_block",
        "earlier prompts share less than the whole block of the cache that it is in",
        _BOTH,
    ),
    MissCause(
        "not_loaded",
        "a lower tier or another machine had it, but it was computed: no free blocks, or by fetch.policy",
        _TIMED,
    ),
)


def reported_by(reporter: Reporter) -> tuple[MissCause, ...]:
    """Return the causes that replays, or timed runs, report, in the order of the columns."""
    return tuple(cause for cause in MISS_CAUSES if reporter in cause.reported_by)
