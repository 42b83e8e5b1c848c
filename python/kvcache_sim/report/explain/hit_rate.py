"""Sentences on the hit rate: its upper bound, and the causes of its misses."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.units import format_time_ns
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.report.upper_bound import hit_rates

#: Least share of all prompt tokens that earns a cause its sentence.
_WORTH_SAYING = 0.005
#: Share of all prefill below which a larger cache can avoid nothing of interest.
_LITTLE_AVOIDABLE = 0.02
#: Causes that no capacity could remedy.
_HOPELESS = ("never_seen", "diverged", "shorter", "partial_block", "window_moved_on", "no_checkpoint")
#: Cause of misses → what the sentence says after their share of prompt tokens.
_OF_CAUSE = {
    "diverged": "follow a shared prefix but diverge from every earlier request: no cache could serve them.",
    "not_ready": "were still being computed by an earlier request: requests with a common prefix arrive "
    "together.",
    "not_admitted": "were computed on the same machine but not cached or not visible: see cache.enabled, "
    "cache.admission, cache.discard_on_finish and prefix_view.",
    "partial_block": "are shared with earlier prompts, but the shared part is shorter than the cache's block "
    "of {block:,} tokens: no capacity could serve them.",
    "not_loaded": "were on a lower tier or another machine and were computed: they found no free blocks to "
    "land in, or fetch.policy chose so.",
    "window_moved_on": "were cached in other layers, but sliding-window layers had released their blocks: "
    "cache.retention_interval keeps windows in between.",
    "no_checkpoint": "were cached in other layers, but no state checkpoint was kept there: "
    "cache.retention_interval keeps states in between.",
}


def missed_share(case: Case, cause: str) -> float:
    """Return the share of prompt tokens missed for a cause, 0 where causes are unknown."""
    if case.reuse is None or not case.prompt_tokens:
        return 0.0
    return int(case.reuse.missed[cause].sum()) / case.prompt_tokens


def upper_bound(case: Case) -> str | None:
    """The hit rate compared with that of an unbounded cache."""
    rates = hit_rates(case.run)
    if rates is None or rates[1] == 0:
        return None
    hit, most = rates
    return (
        f"The token hit rate is {percent(hit)}, {percent(hit / most)} of the upper bound of {percent(most)} "
        "(unbounded cache)."
    )


def no_trace(case: Case) -> str | None:
    """Causes are unknown without the trace."""
    if case.reuse is not None:
        return None
    return "Causes of misses are unknown: the run's trace has moved or changed."


def at_upper_bound(case: Case) -> str | None:
    """A larger cache would avoid hardly any prefill."""
    avoidable = avoidable_share(case)
    if avoidable is None or avoidable > _LITTLE_AVOIDABLE:
        return None
    return f"A larger cache or another policy could avoid at most {percent(avoidable)} of all prefill."


def avoidable_share(case: Case) -> float | None:
    """Return the share of computed prompt tokens that a larger cache may serve; None where it is unknown."""
    rates = hit_rates(case.run)
    if case.reuse is None or rates is None or rates[1] == 0:
        return None
    return _of_prefill(case, *(cause for cause in case.reuse.missed if cause not in _HOPELESS))


def _of_prefill(case: Case, *causes: str) -> float:
    """Return the share of computed prompt tokens that were missed for these causes."""
    missed = {} if case.reuse is None else case.reuse.missed
    computed = sum(int(tokens.sum()) for tokens in missed.values())
    return sum(int(missed[cause].sum()) for cause in causes) / computed if computed else 0.0


def lacks_ids(case: Case) -> bool:
    """Return True if the trace does not say which blocks its prompts share."""
    from kvcache_sim.workload.readers.findings import HIT_RATES_NEED_IDS

    trace = case.run.trace
    return trace is not None and any(HIT_RATES_NEED_IDS in warning for warning in trace.warnings)


def synthesised(case: Case) -> str | None:
    """The shared prefixes are an assumption."""
    from kvcache_sim.workload.synthetic_prefixes import SYNTHESISED

    trace = case.run.trace
    notes = [] if trace is None else [one for one in trace.warnings if SYNTHESISED in one]
    if not notes:
        return None
    return f"The {notes[0].partition(': ')[2]}. Hit rates depend on this assumption."


def nothing_repeats(case: Case) -> str | None:
    """The traffic has no reuse."""
    rates = hit_rates(case.run)
    if rates is None or rates[1] > 0:
        return None
    if lacks_ids(case):
        return "The trace names no blocks and no sessions: hit rates need ids."
    return "No block is requested twice: no cache of any size could serve this traffic."


def never_seen(case: Case) -> str | None:
    """Compulsory misses."""
    share = missed_share(case, "never_seen")
    if share < _WORTH_SAYING or lacks_ids(case):
        return None
    return f"{percent(share)} of prompt tokens are requested for the first time: no cache could serve them."


def evicted(case: Case) -> str | None:
    """Capacity misses, and the median time that the blocks had been idle when they were missed."""
    share = missed_share(case, "evicted")
    if share < _WORTH_SAYING or case.reuse is None:
        return None
    idle_ns = case.reuse.evicted_idle_ns[case.reuse.missed["evicted"] > 0]
    idle = f" (median idle time {format_time_ns(float(np.median(idle_ns)))})" if (idle_ns > 0).any() else ""
    fleet = case.run.summary.get("fleet", {})
    lost = ", or lost with a tier," if fleet.get("tiers_lost") else ""
    sentence = (
        f"{percent(share)} of prompt tokens ({percent(_of_prefill(case, 'evicted'))} of all prefill) were "
        f"evicted on their machine{lost} before reuse{idle}: more capacity could serve them."
    )
    if (in_part := in_chunks_share(case)) >= _WORTH_SAYING:
        chunk, (gpu, below) = case.scenario.settings.cache.lower_chunk_tokens, case.tiers[:2]
        sentence += (
            f" Of all prompt tokens, {percent(in_part)} lie in chunks of {chunk:,} tokens that earlier "
            f"prompts have in part: {below} cannot keep these, only {gpu} can."
        )
    return sentence


def in_chunks_share(case: Case) -> float:
    """Return the share of prompt tokens that the GPU evicted and that fill no chunk of the tier below."""
    chunk = case.scenario.settings.cache.lower_chunk_tokens
    if case.reuse is None or not chunk or not case.prompt_tokens:
        return 0.0
    whole = np.maximum(case.reuse.seen // chunk * chunk, case.reuse.cached)
    in_part = np.clip(case.reuse.seen - whole, 0, case.reuse.missed["evicted"])
    return int(in_part.sum()) / case.prompt_tokens


def evictors(case: Case) -> str | None:
    """The blocks that other requests wrote between the last use of an evicted context and its reuse."""
    if case.reuse is None or missed_share(case, "evicted") < _WORTH_SAYING:
        return None
    rows = case.run.finished
    lost = np.flatnonzero((case.reuse.missed["evicted"] > 0) & (case.reuse.last_user >= 0))
    if not len(lost):
        return None
    block = case.run.block_size_tokens
    written = np.zeros(len(lost), np.int64)
    longest = np.zeros(len(lost), np.int64)
    for machine in np.unique(rows["machine"]).tolist():
        of_machine = np.flatnonzero(rows["machine"] == machine)
        of_machine = of_machine[np.argsort(rows["arrival_ns"][of_machine], kind="stable")]
        new_tokens = rows["num_tokens_actually_prefilled"][of_machine] + rows["output_tokens"][of_machine]
        total = np.concatenate([[0], np.cumsum(new_tokens)])
        source = np.full(len(rows["machine"]), -1, np.int64)
        source[of_machine] = np.arange(len(of_machine))
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
        f"While an evicted context was idle, other requests wrote a median of "
        f"{int(np.median(written[some])) // block:,} blocks on its machine, whose tiers hold {held:,}. "
        f"The largest request wrote {percent(share)} of them."
    )


def elsewhere(case: Case) -> str | None:
    """Misses because the router spread a prefix over machines."""
    share = missed_share(case, "elsewhere")
    if share < _WORTH_SAYING:
        return None
    fleet = case.run.summary.get("fleet", {})
    reasons = [f"the router ({case.scenario.settings.router.policy}) sent the request elsewhere"]
    if (case.run.finished["decode_machine"] >= 0).any():
        reasons.append("a decode machine generated them")
    if fleet.get("lost") or fleet.get("released"):
        reasons.append("that machine had left")
    return (
        f"{percent(share)} of prompt tokens were recomputed although another machine had computed them: "
        f"{', or '.join(reasons)}."
    )


def shorter(case: Case) -> str | None:
    """Block granularity."""
    share = missed_share(case, "shorter")
    if share < 0.02:
        return None
    of_groups = case.scenario.settings.cache.groups is not None  # their sizes are the model's
    return (
        f"{percent(share)} of prompt tokens lie at the end of prompts and fill no block of "
        f"{case.block_tokens:,} tokens{'' if of_groups else ': smaller blocks could share some of them'}."
    )


def missed(cause: str, case: Case) -> str | None:
    """Misses of a cause in ``_OF_CAUSE``."""
    share = missed_share(case, cause)
    if share < _WORTH_SAYING:
        return None
    return f"{percent(share)} of prompt tokens {_OF_CAUSE[cause].format(block=case.block_tokens)}"
