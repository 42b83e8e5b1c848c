"""The lengths of prefixes whose KV loads faster than it is recomputed, and what hits save."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, LOAD_EDGES, TIERS
from kvcache_sim.base.units import format_time_ms
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.report.explain.case import Case, percent
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.spec.channels import Size, layer_ns

#: Share of TTFT, without its queue, from which on what tiers save or cost is more than the estimate's error.
_SURE = 0.1


class Load(NamedTuple):
    """Times after which the first and the last layer of a prefix are there, in ns."""

    first_ns: int
    last_ns: int


class Lengths(NamedTuple):
    """Lengths in tokens, both included; ``most`` is None where the longest tried is among them."""

    least: int
    most: int | None


def load_of(settings: ClusterSettings, tier: str, tokens: int) -> Load | None:
    """Return the times to load a prefix from a tier of machine 0 over idle channels, or None without a path.

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
    sending = max(occupations)
    return Load(latencies + sending // settings.cache.num_layers, latencies + sending)


def compute_ns(settings: ClusterSettings, tokens: int) -> int:
    """Return the time to prefill a prompt's first tokens alone, in chunks of the step's token budget."""
    machine = settings.machines[0]
    budget = machine.replica.max_num_batched_tokens
    total = 0
    for start in range(0, tokens, budget):
        chunk = min(budget, tokens - start)
        total += machine.step_time.step(StepBatch(((chunk, start),), 0, 0, 0))
    return total


def loads_faster(settings: ClusterSettings, tier: str, tokens: int, rest_tokens: int) -> bool:
    """Return True if a prompt of a prefix and a rest is prefilled earlier with the prefix loaded.

    The rest is computed in any case: with layers as they arrive (semantics 4), or after the last one.
    """
    load, layers = load_of(settings, tier, tokens), settings.cache.num_layers
    if load is None:
        return False
    whole_ns = compute_ns(settings, tokens + rest_tokens)
    rest_ns = whole_ns - compute_ns(settings, tokens) if rest_tokens else 0
    rest_ns = max(rest_ns, compute_ns(settings, rest_tokens))
    if settings.movement.layer_pipelining:
        return max(load.first_ns + rest_ns, load.last_ns + rest_ns // layers) < whole_ns
    return load.last_ns + rest_ns < whole_ns


def break_even_lengths(block: int, longest_tokens: int, faster: Callable[[int], bool]) -> Lengths | None:
    """Return the lengths (whole blocks) at which a prefix loads faster; None: at none that was tried.

    Lengths are tried in doubling steps, and the borders halved in.
    """
    tried = [block << n for n in range(max(longest_tokens // block, 1).bit_length())]
    wins = [tokens for tokens in tried if faster(tokens)]
    if not wins:
        return None
    least, most = wins[0], wins[-1]
    if least > block:
        least = _border(least // 2, least, faster, block)
    if most == tried[-1]:
        return Lengths(least, None)
    return Lengths(least, _border(2 * most, most, faster, block))


def _border(loses: int, wins: int, faster: Callable[[int], bool], block: int) -> int:
    """Return the length next to those that lose, between one that loses and one that wins."""
    while abs(wins - loses) > block:
        middle = (wins + loses) // 2 // block * block
        loses, wins = (loses, middle) if faster(middle) else (middle, wins)
    return wins


def break_even(tier: str, case: Case) -> str | None:
    """Return the lengths at which loading from a tier beats recomputing."""
    settings, rows = case.scenario.settings, case.run.finished
    block = settings.cache.block_size_tokens
    if tier not in case.tiers or settings.machines[0].replica.instant or not len(rows["request"]):
        return None
    if load_of(settings, tier, block) is None:
        return None
    found = lengths_of_run(tier, case)
    served = rows[f"cached_{tier}_tokens"]
    hits = served[served > 0]
    said = f"On an idle channel, loading from {tier} beats recomputing {_words(found, block)}"
    if not len(hits) or (found is not None and found == (block, None)):
        return f"{said}."
    inside = np.zeros(len(hits), bool)
    if found is not None:
        inside = (hits >= found.least) & (hits <= (found.most or hits.max()))
    return f"{said}: for {percent(float(inside.mean()))} of its hits."


def lengths_of_run(tier: str, case: Case) -> Lengths | None:
    """Return ``break_even_lengths`` up to a run's longest prompt, with its median computed part behind."""
    settings, rows = case.scenario.settings, case.run.finished
    rest = int(np.median(rows["num_tokens_actually_prefilled"]))
    return break_even_lengths(
        settings.cache.block_size_tokens,
        int(rows["input_tokens"].max()),
        lambda tokens: loads_faster(settings, tier, tokens, rest),
    )


def _words(found: Lengths | None, block: int) -> str:
    if found is None:
        return "at no length"
    if found.most is None:
        return "at every length" if found.least == block else f"from {found.least:,} tokens on"
    return (
        f"up to {found.most:,} tokens"
        if found.least == block
        else f"from {found.least:,} to {found.most:,} tokens"
    )


def net(case: Case) -> str | None:
    """Return what hits below the GPU save of TTFT, less waits for KV and free blocks; None without hits.

    Saved is the prefill of the mean hit, by the step times, with the median of computed tokens behind. Waits
    in the queue are left out: they change in the same direction.
    """
    settings, rows = case.scenario.settings, case.run.finished
    served = np.zeros(len(rows["request"]), np.int64)
    for source in KV_SOURCES[COMPUTE + 1 :]:
        served += rows[f"cached_{source}_tokens"]
    hits = served[served > 0]
    if not len(hits) or settings.machines[0].replica.instant:
        return None
    rest, hit = int(np.median(rows["num_tokens_actually_prefilled"])), int(hits.mean())
    saved_ns = compute_ns(settings, hit + rest) - compute_ns(settings, rest)
    saved_ms = saved_ns / 1e6 * len(hits) / len(served)
    loads_ms, stalls_ms = case.mean_ms("fetch_ns"), case.mean_ms("batch_stall_ns")
    costs = f"loads and the writes before them cost {format_time_ms(loads_ms)}"
    if stalls_ms:
        costs += f", and stalls of their batches {format_time_ms(stalls_ms)}"
    difference, verdict = saved_ms - loads_ms - stalls_ms, ""
    if abs(difference) > _SURE * (case.ttft_ms - case.mean_ms("queue_ns")):
        verdict = f": TTFT would be {'longer' if difference > 0 else 'shorter'} without them"
    saved = f"Of the mean TTFT, hits below gpu save about {format_time_ms(saved_ms)} of prefill"
    return f"{saved}; {costs}{verdict}."
