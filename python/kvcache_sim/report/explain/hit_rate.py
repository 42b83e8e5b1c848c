"""Why the hit rate is what it is."""

from __future__ import annotations

import numpy as np

from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.units import format_time_ns

#: Below this share of all prompt tokens a cause is not worth a sentence.
_WORTH_SAYING = 0.005
_NEAR_UPPER_BOUND = 0.95
#: What an unbounded cache shared by all machines would have served.
_SERVABLE = ("evicted", "not_ready", "elsewhere", "not_admitted", "window_moved_on", "no_checkpoint")


def _missed(case: Case, cause: str) -> float:
    """Return the share of prompt tokens missed for one cause, 0 where it cannot be told."""
    if case.reuse is None or not case.prompt_tokens:
        return 0.0
    return int(case.reuse.missed[cause].sum()) / case.prompt_tokens


def _rates(case: Case) -> tuple[float, float] | None:
    """Return the token hit rate and its ceiling, an unbounded cache shared by all machines."""
    if case.reuse is None or not case.prompt_tokens:
        return None
    hit = int(case.reuse.cached.sum()) / case.prompt_tokens
    lost = sum(_missed(case, cause) for cause in _SERVABLE)
    return hit, hit + lost


def upper_bound_of(case: Case) -> float | None:
    """Return the token hit rate that one unbounded cache shared by all machines could have reached.

    None where that cannot be told: the trace is not at hand, or no request finished.
    """
    rates = _rates(case)
    return None if rates is None else rates[1]


def upper_bound(case: Case) -> str | None:
    """The hit rate beside the most that any cache could reach."""
    rates = _rates(case)
    if rates is None or rates[1] == 0:
        return None
    hit, most = rates
    return (
        f"The token hit rate is {percent(hit)} of {percent(most)} possible: {percent(hit / most)} of the "
        "ceiling."
    )


def no_trace(case: Case) -> str | None:
    """Causes cannot be told without the trace."""
    if case.reuse is not None:
        return None
    return "Causes of misses are not told: the run's trace is not where it was, or has changed."


def at_upper_bound(case: Case) -> str | None:
    """A larger cache would not help."""
    rates = _rates(case)
    if rates is None or rates[1] == 0 or rates[0] < _NEAR_UPPER_BOUND * rates[1]:
        return None
    return "The cache serves nearly all that repeats: a larger one, or another policy, has nothing to add."


def _lacks_ids(case: Case) -> bool:
    """Whether the trace tells nothing of what its prompts share."""
    from kvcache_sim.workload.readers.findings import HIT_RATES_NEED_IDS

    trace = case.run.trace
    return trace is not None and any(HIT_RATES_NEED_IDS in warning for warning in trace.warnings)


def synthesised(case: Case) -> str | None:
    """What prompts share is an assumption."""
    from kvcache_sim.workload.synthetic_prefixes import SYNTHESISED

    trace = case.run.trace
    notes = [] if trace is None else [one for one in trace.warnings if SYNTHESISED in one]
    if not notes:
        return None
    return f"The {notes[0].partition(': ')[2]}. Hit rates rest on that assumption."


def nothing_repeats(case: Case) -> str | None:
    """The traffic has no reuse."""
    rates = _rates(case)
    if rates is None or rates[1] > 0:
        return None
    if _lacks_ids(case):
        return "The trace names no blocks and no sessions: hit rates need ids, so nothing is said of caches."
    return "No block is asked for twice: no cache of any size could serve this traffic."


def never_seen(case: Case) -> str | None:
    """Compulsory misses."""
    share = _missed(case, "never_seen")
    if share < _WORTH_SAYING or _lacks_ids(case):
        return None
    return f"{percent(share)} of the prompt tokens were asked for the first time: no cache could serve them."


def diverged(case: Case) -> str | None:
    """Compulsory misses behind a common beginning."""
    share = _missed(case, "diverged")
    if share < _WORTH_SAYING:
        return None
    return (
        f"{percent(share)} of the prompt tokens were new behind a beginning that other requests had "
        "continued differently: no cache could serve them."
    )


def evicted(case: Case) -> str | None:
    """Capacity misses: how long they were idle, what was written meanwhile, and who wrote most of it."""
    share = _missed(case, "evicted")
    if share < _WORTH_SAYING or case.reuse is None:
        return None
    lost = case.reuse.missed["evicted"]
    rows = np.flatnonzero((lost > 0) & (case.reuse.idle_ns >= 0))
    idle = float(np.median(case.reuse.idle_ns[rows])) if len(rows) else 0.0
    return (
        f"{percent(share)} of the prompt tokens had been computed on the same machine and were evicted "
        "before "
        f"they were asked for again, after a median idle time of {format_time_ns(idle)}."
    )


def evictors(case: Case) -> str | None:
    """Who evicted whom: what other requests wrote between the last use and the return."""
    if case.reuse is None or _missed(case, "evicted") < _WORTH_SAYING:
        return None
    rows = case.run.finished
    lost = np.flatnonzero((case.reuse.missed["evicted"] > 0) & (case.reuse.last_user >= 0))
    if not len(lost):
        return None
    block = case.run.block_size_tokens
    written = np.zeros(len(lost), np.int64)
    longest = np.zeros(len(lost), np.int64)
    for machine in np.unique(rows["machine"]).tolist():
        own = np.flatnonzero(rows["machine"] == machine)
        own = own[np.argsort(rows["arrival_ns"][own], kind="stable")]
        new_tokens = rows["num_tokens_actually_prefilled"][own] + rows["output_tokens"][own]
        total = np.concatenate([[0], np.cumsum(new_tokens)])
        source = np.full(len(rows["machine"]), -1, np.int64)
        source[own] = np.arange(len(own))
        for n in np.flatnonzero(rows["machine"][lost] == machine).tolist():
            start, end = source[case.reuse.last_user[lost[n]]] + 1, source[lost[n]]
            if 0 < start < end:
                written[n] = total[end] - total[start]
                longest[n] = new_tokens[start:end].max()
    if not written.any():
        return None
    some = written > 0
    held = sum(t.capacity_blocks or 0 for t in case.scenario.settings.machines[0].tiers)
    share = float(np.median(longest[some] / written[some]))
    return (
        f"Between the last use and the return of an evicted context, other requests wrote a median of "
        f"{int(np.median(written[some])) // block:,} blocks on its machine, whose tiers hold {held:,}; "
        "the largest "
        f"single one of them wrote {percent(share)} of that."
    )


def elsewhere(case: Case) -> str | None:
    """The router spread a prefix."""
    share = _missed(case, "elsewhere")
    if share < _WORTH_SAYING:
        return None
    policy = case.scenario.settings.router.policy
    return (
        f"{percent(share)} of the prompt tokens were computed again although another machine had computed "
        "them: "
        f"the router ({policy}) sent their request elsewhere."
    )


def not_ready(case: Case) -> str | None:
    """Requests came before their prefix was computed."""
    share = _missed(case, "not_ready")
    if share < _WORTH_SAYING:
        return None
    return (
        f"{percent(share)} of the prompt tokens were being computed by an earlier request when they were "
        "asked "
        "for: requests with a common prefix arrive together."
    )


def shorter(case: Case) -> str | None:
    """Block granularity."""
    share = _missed(case, "shorter")
    if share < 0.02:
        return None
    return (
        f"{percent(share)} of the prompt tokens lie in ends of prompts that fill no block of "
        f"{case.run.block_size_tokens} tokens: smaller blocks could share some of them."
    )


def not_admitted(case: Case) -> str | None:
    """A setting kept blocks out."""
    share = _missed(case, "not_admitted")
    if share < _WORTH_SAYING:
        return None
    return (
        f"{percent(share)} of the prompt tokens had been computed on the same machine, but the scenario "
        "keeps blocks out of the cache or out of reach (cache.enabled, cache.admission, "
        "cache.discard_on_finish, prefix_view)."
    )


def window_moved_on(case: Case) -> str | None:
    """A window kept nothing where other layers could go on."""
    share = _missed(case, "window_moved_on")
    if share < _WORTH_SAYING:
        return None
    return (
        f"{percent(share)} of the prompt tokens were there in other layers, but the layers with a window had "
        "moved on and kept nothing to go on from: a cache.retention_interval keeps windows on the way."
    )


def no_checkpoint(case: Case) -> str | None:
    """A state was not kept where other layers could go on."""
    share = _missed(case, "no_checkpoint")
    if share < _WORTH_SAYING:
        return None
    return (
        f"{percent(share)} of the prompt tokens were there in other layers, but no checkpoint of a state was "
        "kept to go on from: a cache.retention_interval keeps states on the way."
    )
