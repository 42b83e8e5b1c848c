"""Replays of providers' prompt caches: prefixes that live for a time, on machines that are not known.

A prompt's content blocks are the ``segments`` of its row, in which breakpoints stand as clients usually set
them: after tools and system, and at the end. Rows without segments have one breakpoint, at the end of their
last whole block, and no look-back. The setting after the policy's name is a lifetime, and for OpenAI the
probability that a request reaches the machine which has its prefix, and its seed: ``anthropic:1h``,
``openai:5m,0.87,7``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from kvcache_sim._core import HostedCache
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.units import parse_time_ns
from kvcache_sim.model.prices import TTL_NS, Provider, price_table
from kvcache_sim.policies.settings import setting_refused
from kvcache_sim.replay.request import ReplayRequest, ReplayResult

#: Lifetimes of the curve.
LIFETIMES = ("60s", "5m", "10m", "30m", "1h", "12h", "24h")
_FOREVER_NS = 1 << 63
_HEAD = ("tools", "system")


class _Rules(NamedTuple):
    """The rules of a provider with the setting of the user."""

    provider: Provider
    idle_ns: int
    routing: float
    #: Seed of the stream by which a request reaches the machine with its prefix, or another one.
    seed: int


class _Row(NamedTuple):
    """A prompt as a path: the name of each block with all before it, and the tokens at its end."""

    names: list[int]
    ends: list[int]
    #: Blocks of tools and system.
    head: int


def replay_hosted(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay a trace against a provider's cache; ``variant`` is the policy as written.

    Raises ``UsageError`` for a setting without effect.
    """
    for option, given in (
        ("--window", request.window != 0),
        ("--flat", request.discipline == "flat"),
        ("--order", request.touch_from != "tail"),
        ("--last-partial", request.last_partial != "drop"),
        ("--outputs", request.outputs != "prompt"),
        ("--store-threshold", request.store_threshold != 0),
        ("--reuse-outputs", request.reuse_outputs),
    ):
        if given:
            raise UsageError(f"has no effect with --policy {variant}", where=option)
    rules, trace = _rules(variant), request.trace
    cache = HostedCache(rules.provider.look_back_blocks, rules.provider.searched_marks)
    cut, read, written, has_segments = _Cut(request), 0, 0, False
    draw = stream(rules.seed, "hosted routing")
    reads = [0] * len(trace)
    for row in sorted(range(len(trace)), key=lambda row: int(trace.arrival_ns[row])):
        path = cut.row(row)
        has_segments = has_segments or bool(path.head)
        is_routed = rules.routing >= 1 or draw.random() < rules.routing
        found, new = _served(cache, rules, path, int(trace.arrival_ns[row]), is_routed)
        read, written = read + found, written + new
        reads[row] = found
    queried = int(trace.input_tokens.sum())
    assumed = [
        *rules.provider.unconfirmed,
        "an entry can be read at once: traces have no time of a first token",
    ]
    if not has_segments:
        assumed.append("no segments in the rows: breakpoints at the ends of prompts, no look-back")
    return {
        "policy": variant,
        "n_requests": len(trace),
        "block_size": request.block_size_tokens,
        "queried_tokens": queried,
        "hit_tokens": read,
        "hit_rate": read / queried if queried else 0.0,
        "written_tokens": written,
        "uncached_tokens": queried - read - written,
        "ttl_ns": rules.idle_ns,
        "assumed": "; ".join(assumed),
        **({"requests": {"read_tokens": reads}} if request.explain else {}),
    }


def hit_rates_by_lifetime(request: ReplayRequest, policy: str) -> dict[str, float]:
    """Return the share of tokens read at lifetimes of a minute to a day, by the lifetime's name."""
    name, _, setting = policy.partition(":")
    lifetime, _, routing = setting.partition(",")
    if lifetime:
        raise UsageError("the curve is one over lifetimes", where="--policy", got=policy, expected=name)
    ends = [f"{name}:{ttl}" + f",{routing}" * bool(routing) for ttl in LIFETIMES]
    return {
        ttl: float(replay_hosted(request, each)["hit_rate"])
        for ttl, each in zip(LIFETIMES, ends, strict=True)
    }


def _rules(variant: str) -> _Rules:
    name, _, setting = variant.partition(":")
    provider = price_table().policy(name)
    ttl, routing, seed, *more = [*setting.split(","), "", ""]
    try:
        share, drawn = float(routing or 1), int(seed or 0)
        idle_ns = TTL_NS.get(ttl or provider.default_ttl) or parse_time_ns(ttl)
    except (ValueError, UsageError):
        share = -1.0
    is_routed = not routing or (provider.step_tokens > 0 and drawn >= 0)
    if not 0 <= share <= 1 or not is_routed or (seed and not routing) or len(more) > 2:
        expected = "a lifetime; for openai a probability and its seed too, such as openai:5m,0.87,7"
        raise setting_refused(variant, expected)
    return _Rules(provider, idle_ns, share, drawn)


def _served(cache: HostedCache, rules: _Rules, row: _Row, at_ns: int, is_routed: bool) -> tuple[int, int]:
    """Return the tokens that a prompt reads and writes; its prefixes are kept."""
    if not row.names:
        return 0, 0
    provider = rules.provider
    nodes, known = cache.extend(0, row.names)
    sizes = dict(zip(nodes, row.ends, strict=True))
    marks = [nodes[row.head - 1]] * bool(row.head) + [nodes[-1]]
    found = cache.find(nodes[-1], marks, at_ns)[0] if is_routed else None
    read = provider.stepped(0 if found is None else sizes[found])
    if found is not None:
        cache.refresh(found, at_ns)
    life = (at_ns, at_ns, rules.idle_ns, _FOREVER_NS if provider.most_ns is None else provider.most_ns)
    if provider.policy == "openai":
        cache.write_path(nodes[-1], life)
        return read, 0
    if provider.policy == "deepseek":
        cache.write([nodes[-1], *nodes[known - 1 : known]], life)
        return read, 0
    written = [at for at in marks if sizes[at] >= provider.minimum_tokens]
    cache.write(written, life)
    return read, max([0, *(sizes[at] - read for at in written)])


class _Cut:
    """Cuts prompts of a trace into content blocks."""

    def __init__(self, request: ReplayRequest) -> None:
        self._trace, self._size = request.trace, request.block_size_tokens
        self._names: dict[tuple[int, int], int] = {}

    def row(self, row: int) -> _Row:
        """Return a prompt; blocks of equal tokens behind equal ones have one name."""
        trace, size = self._trace, self._trace.block_size
        ids = trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]].tolist()
        kinds = self._segments(row)
        if not kinds:
            whole = min(len(ids), int(trace.input_tokens[row]) // size)
            return _Row(ids[:whole], [size * (at + 1) for at in range(whole)], 0)
        ends, end, head = [], 0, 0
        for kind, tokens in kinds:
            end, head = end + tokens, head + (kind in _HEAD)
            ends.append(end)
        names = [self._name(ids, end) for end in ends]
        return _Row(names, ends, head)

    def _name(self, ids: Sequence[int], end: int) -> int:
        whole = min(len(ids), end // self._trace.block_size)
        return self._names.setdefault((ids[whole - 1] if whole else -1, end), len(self._names))

    def _segments(self, row: int) -> list[tuple[str, int]]:
        extra = self._trace.extra[row] if self._trace.extra else ""
        given: Any = json.loads(f"{{{extra}}}").get("segments") if extra else None
        return [(str(kind), int(tokens)) for kind, tokens in given or () if int(tokens) > 0]
