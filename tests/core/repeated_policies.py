"""Plug-ins with the rules of built-in policies, each named by the policy: they decide as the core's own do.

Named as ``support.repeated_policies:Fetch(policy='split')``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvcache_sim.base.tiers import COMPUTE, STAGING
from kvcache_sim.serving.settings import ClusterSettings

QUEUES: dict[str, Callable[[Any], tuple[float, ...]]] = {
    "fcfs": lambda w: (),
    "longest-prefix": lambda w: (-w.cached_tokens,),
    "shortest-first": lambda w: (w.tokens - w.cached_tokens,),
    "priority": lambda w: (w.priority, w.arrival_ns),
    "program-fcfs": lambda w: (w.priority, w.arrival_ns),
    "later-turns": lambda w: (-w.turn,),
    "ragcache": lambda w: (w.passed < 32, -w.cached_tokens / max(w.tokens - w.cached_tokens, 1)),
}


def _ready(plan: Any) -> int:
    reused = plan.ready
    for part in plan.parts:
        if part.tier > STAGING or not part.is_ready:
            break
        reused = max(reused, part.end)
    return reused


def _cut(plan: Any) -> int:
    cuts = {plan.ready + (plan.end - plan.ready) * i // 32 for i in range(33)}
    return min(sorted(cuts, reverse=True), key=plan.done_ns)


FETCHES: dict[str, Callable[[Any], int]] = {
    "always": lambda plan: plan.end,
    "never": lambda plan: max((part.end for part in plan.parts if part.tier == COMPUTE), default=0),
    "cheaper": lambda plan: plan.end if plan.done_ns(plan.end) <= plan.done_ns(plan.ready) else plan.ready,
    "split": _cut,
    "best-effort": _ready,
}


class Queue:
    """A queue order."""

    def __init__(self, policy: str) -> None:
        self._rule = QUEUES[policy]

    def key(self, waiting: Any) -> tuple[float, ...]:
        """Return what orders a request."""
        return self._rule(waiting)


class Fetch:
    """A fetch policy."""

    def __init__(self, policy: str) -> None:
        self._rule = FETCHES[policy]

    def reuse(self, plan: Any) -> int:
        """Return how many leading blocks are reused."""
        return self._rule(plan)


class Admission:
    """Keeps all of a request, or its prompt."""

    def __init__(self, policy: str) -> None:
        self._prompt = policy == "prompt"

    def kept_blocks(self, finished: Any) -> int:
        """Return how many leading blocks are kept."""
        prompt = finished.prompt_tokens // finished.block_size_tokens
        return min(prompt, finished.blocks) if self._prompt else finished.blocks


class Prefetch:
    """Prefetches all requested blocks, on the occasion of a policy's name."""

    def __init__(self, policy: str) -> None:
        self.occasions = (policy,)

    def blocks(self, candidate: Any) -> int:
        """Return how many leading blocks are brought up."""
        return candidate.blocks


class Channel:
    """Takes the first channel, or the one that is free first."""

    def __init__(self, policy: str) -> None:
        self._emptiest = policy == "emptiest"

    def choose(self, sending: Any, channels: Any) -> str:
        """Return the name of a channel."""
        names = list(channels)
        return (
            min(names, key=lambda name: channels[name].wait_ns(sending.now_ns))
            if self._emptiest
            else names[0]
        )


class Write:
    """A write policy of one edge."""

    def __init__(self, upper: int, settings: Any, policy: str) -> None:
        self._upper, self._uses = upper, settings.write_selective_uses if policy == "selective" else 0
        self._through = policy in ("through", "through-sync")
        self.writes_back = policy != "selective"
        self.at_commit = self._through
        self.delays_step = policy == "through-sync"

    def committed(self, store: Any, lease: int, blocks: tuple[int, int], now_ns: int) -> Any:
        """Write what was computed."""
        return store.write_through(lease, *blocks, now_ns)

    def used(self, store: Any, lease: int, now_ns: int) -> Any:
        """Write the blocks that are used often enough."""
        return store.write_selected(lease, self._upper, self._uses, now_ns) if self._uses else None

    def arrived(self, store: Any, move: int, now_ns: int) -> Any:
        """Write further down the blocks that arrive from above."""
        return store.write_on(move, now_ns) if self._through else None


def _named(kind: str, policy: str) -> str:
    return f"{__name__}:{kind}(policy={policy!r})"


def repeated(settings: ClusterSettings, kind: str) -> ClusterSettings:
    """Return a cluster whose policies of a kind are plug-ins with the same rules; the same where it has none."""
    movement = settings.movement
    if kind == "queue":
        machines = tuple(
            replace(m, replica=replace(m.replica, queue_order=_named("Queue", m.replica.queue_order)))
            for m in settings.machines
        )
        return replace(settings, machines=machines)
    if kind == "admission":
        name = _named("Admission", settings.cache.admission)
        return replace(settings, cache=replace(settings.cache, admission=name))
    if kind == "fetch" and movement.fetch in FETCHES:
        movement = replace(movement, fetch=_named("Fetch", movement.fetch))
    if kind == "prefetch" and movement.prefetch != "none":
        movement = replace(movement, prefetch=_named("Prefetch", movement.prefetch))
    if kind == "channel":
        movement = replace(movement, channel_choice=_named("Channel", movement.channel_choice))
    if kind == "write":
        movement = replace(
            movement, write={e: _named("Write", policy) for e, policy in movement.write.items()}
        )
    return replace(settings, movement=movement)
