"""The shortest prefix whose KV loads faster than it is recomputed, tier by tier."""

from __future__ import annotations

from kvcache_sim.base.tiers import LOAD_EDGES, TIERS
from kvcache_sim.base.units import format_time_ns
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.spec.channels import Size, layer_ns

_LONGEST_BLOCKS = 1 << 12


def load_ns(settings: ClusterSettings, tier: str, tokens: int) -> int | None:
    """Return the time to load a prefix from a tier of machine 0 over idle channels, or None without a path.

    Per hop: latency + n × submit + max(bytes ÷ bandwidth + n × gap, n × overhead), with n pieces, one a block
    and layer; hops of a pipelined path overlap, so the slowest counts whole and the others by their
    latency and submission (semantics 3, 4).
    """
    machine = settings.machines[0]
    forms = {tier.name: tier.form for tier in machine.tiers}
    on_gpus_bytes = tokens * settings.cache_of(0).kv_bytes_per_token
    pieces = tokens // settings.cache.block_size_tokens * settings.cache.num_layers
    occupations, latencies = [], 0
    for edge in reversed(LOAD_EDGES[: TIERS.index(tier)]):
        name = machine.edge_channels.get(edge)
        if name is None:
            return None
        channel = settings.channels[name]
        sent_bytes = forms[edge.split("->")[0]].bytes_of(on_gpus_bytes)
        occupations.append(layer_ns(channel, Size(sent_bytes, pieces, 1)))
        latencies += channel.latency_ns + pieces * channel.piece_submit_ns
    return max(occupations) + latencies


def compute_ns(settings: ClusterSettings, tokens: int) -> int:
    """Return the time to prefill a prompt's first tokens alone, in chunks of the step's token budget."""
    machine = settings.machines[0]
    budget = machine.replica.max_num_batched_tokens
    total = 0
    for start in range(0, tokens, budget):
        chunk = min(budget, tokens - start)
        total += machine.step_time.step(StepBatch(((chunk, start),), 0, 0, 0))
    return total


def break_even_tokens(settings: ClusterSettings, tier: str) -> int | None:
    """Return the shortest prefix (whole blocks) that loads faster than it computes; None: none, or no path.

    Lengths are tried in doubling steps, then halved in; both times grow with the length.
    """
    block = settings.cache.block_size_tokens

    def loads_faster(blocks: int) -> bool:
        loading = load_ns(settings, tier, blocks * block)
        return loading is not None and loading < compute_ns(settings, blocks * block)

    high = 1
    while not loads_faster(high):
        high *= 2
        if high > _LONGEST_BLOCKS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if loads_faster(middle) else (middle, high)
    return high * block


def break_even(tier: str, case: Case) -> str | None:
    """Return the length from which loading from a tier beats recomputing."""
    if tier not in case.tiers:
        return None
    settings = case.scenario.settings
    block = settings.cache.block_size_tokens
    if settings.machines[0].replica.instant or load_ns(settings, tier, block) is None:
        return None
    shortest = break_even_tokens(settings, tier)
    if shortest is None:
        return (
            f"Recomputing beats loading from {tier} at every length: {block:,} tokens load in "
            f"{format_time_ns(load_ns(settings, tier, block) or 0)} and compute in "
            f"{format_time_ns(compute_ns(settings, block))}. Set fetch.policy=never."
        )
    if shortest == block:
        return f"Loading from {tier} beats recomputing from the first block ({block:,} tokens)."
    served = case.run.finished[f"cached_{tier}_tokens"]
    hits = served[served > 0]
    short = float((hits < shortest).mean()) if len(hits) else 0.0
    return (
        f"Loading from {tier} beats recomputing from {shortest:,} tokens, on an idle channel; "
        f"{percent(short)} of its hits were shorter."
    )
