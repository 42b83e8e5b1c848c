"""Plug-ins of each kind for random scenarios: constant, seeded and extreme answers, and a note of all they saw.

Named as ``support.own_plugins:Fetch(how='half', seed=3)``; ``how`` names a rule, some of them those of built-in
policies. ``SEEN`` holds what the calls saw and answered since it was last emptied: two runs that call plug-ins
alike leave the same. Scenarios that are drawn have this file as their own (``plugin_features.py``).
"""

import random
from collections.abc import Callable
from typing import Any

#: Tiers whose KV a step can use, or whose KV can be loaded next.
GPU, CPU = 0, 1
SEEN: list[Any] = []
#: The call from which on plug-ins raise; 0: none does.
FAILS_AT = [0]


class Own:
    """A plug-in that notes its calls; ``how`` names a rule, ``seed`` what the random ones draw from."""

    def __init__(self, how: str = "", seed: int = 0) -> None:
        self.how = how
        self.draw = random.Random(seed)

    def answer(self, kind: str, saw: Any, given: Any) -> Any:
        """Note a call and return its answer."""
        SEEN.append((kind, saw, given))
        if 0 < FAILS_AT[0] <= len(SEEN):
            raise RuntimeError(f"call {len(SEEN)}")
        return given

    def cut(self, least: int, most: int) -> int:
        """Return a whole number in a range by the rule."""
        if self.how == "least":
            return least
        if self.how == "most":
            return most
        if self.how == "half":
            return least + (most - least) // 2
        return self.draw.randint(least, most)


CUTS = ["least", "most", "half", "random"]
#: Queue orders: constant, of one number, of many, of whole numbers beyond any float; then the built-in ones.
KEYS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "constant": lambda w: (),
    "newest": lambda w: (-w.arrival_ns,),
    "huge": lambda w: (10**40 + w.request % 3, -w.cached_tokens),
    "long": lambda w: (w.passed < 2, w.turn, w.priority, w.tokens / 7, True, w.request),
    "fcfs": lambda w: (),
    "longest-prefix": lambda w: (-w.cached_tokens,),
    "shortest-first": lambda w: (w.tokens - w.cached_tokens,),
    "priority": lambda w: (w.priority, w.arrival_ns),
    "program-fcfs": lambda w: (w.priority, w.arrival_ns),
    "later-turns": lambda w: (-w.turn,),
    "ragcache": lambda w: (w.passed < 32, -w.cached_tokens / max(w.tokens - w.cached_tokens, 1)),
}
QUEUES = ["constant", "newest", "huge", "long", "random"]


class Queue(Own):
    """Orders by one of ``KEYS``, or at random."""

    def key(self, waiting: Any) -> tuple[Any, ...]:
        """Return the key of a waiting request."""
        order = KEYS.get(self.how, lambda w: (self.draw.random(),))
        return self.answer("queue", tuple(waiting), order(waiting))


class Admission(Own):
    """Keeps none, all, half or a random share of a finished request, or its prompt."""

    def kept_blocks(self, finished: Any) -> int:
        """Return how many leading blocks are kept."""
        prompt = min(finished.prompt_tokens // finished.block_size_tokens, finished.blocks)
        kept = prompt if self.how == "prompt" else self.cut(0, finished.blocks)
        return self.answer("admission", tuple(finished), kept)


def _ready(plan: Any) -> int:
    reused = plan.ready
    for part in plan.parts:
        if part.tier > CPU or not part.is_ready:
            break
        reused = max(reused, part.end)
    return reused


def _split(plan: Any) -> int:
    cuts = {plan.ready + (plan.end - plan.ready) * i // 32 for i in range(33)}
    return min(sorted(cuts, reverse=True), key=plan.done_ns)


#: The built-in fetch policies that plan.
PLANS: dict[str, Callable[[Any], int]] = {
    "always": lambda plan: plan.end,
    "never": lambda plan: max((part.end for part in plan.parts if part.tier == GPU), default=0),
    "cheaper": lambda plan: plan.end if plan.done_ns(plan.end) <= plan.done_ns(plan.ready) else plan.ready,
    "split": _split,
    "best-effort": _ready,
}
FETCHES = [*CUTS, "soonest"]


class Fetch(Own):
    """Reuses the ready blocks, all, half, a random share, the alternative that should end first, or a plan's."""

    def reuse(self, plan: Any) -> int:
        """Return how many leading blocks are reused."""
        middle = (plan.ready + plan.end) // 2
        times = [
            (plan.arrival_ns(n), plan.compute_ns(n), plan.done_ns(n)) for n in (plan.ready, middle, plan.end)
        ]
        # moves are numbered otherwise in every store
        parts = [(part.tier, part.start, part.end, part.is_ready, part.away) for part in plan.parts]
        saw = (plan.ready, plan.end, plan.layers, plan.pipelining, times, parts)
        if self.how == "soonest":
            given = min((plan.end, middle, plan.ready), key=plan.done_ns)
        elif self.how in PLANS:
            given = PLANS[self.how](plan)
        else:
            given = self.cut(plan.ready, plan.end)
        return self.answer("fetch", saw, given)


class Prefetch(Own):
    """Prefetches none, all, half or a random share of the blocks, on the given occasions."""

    def __init__(self, how: str = "", seed: int = 0, occasions: tuple[str, ...] = ("queued",)) -> None:
        super().__init__(how, seed)
        self.occasions = occasions

    def blocks(self, candidate: Any) -> int:
        """Return how many leading blocks are brought up."""
        return self.answer("prefetch", tuple(candidate), self.cut(0, candidate.blocks))


class Channel(Own):
    """Takes the first, the last, the emptiest, the least used or a random channel."""

    def choose(self, sending: Any, channels: Any) -> str:
        """Return the name of a channel."""
        now, names = sending.now_ns, list(channels)
        saw = [
            (
                name,
                one.wait_ns(now),
                one.wait_ns(now, 3),
                one.busy_ns,
                one.queued_ns,
                one.jobs,
                one.sent_bytes,
            )
            for name, one in channels.items()
        ]
        rates = [one.settings.bandwidth_bytes_per_s for one in channels.values()]
        if self.how == "emptiest":
            given = min(names, key=lambda name: channels[name].wait_ns(now))
        elif self.how == "unused":
            given = min(names, key=lambda name: channels[name].jobs)
        else:
            given = names[self.cut(0, len(names) - 1)]
        return self.answer("channel", (tuple(sending), saw, rates), given)


CHANNELS = ["least", "most", "random", "emptiest", "unused"]


class Write(Own):
    """Writes all blocks, blocks used often, halves, random blocks, or none; ``flags`` are its three
    attributes."""

    def __init__(
        self,
        upper: int,
        settings: Any,
        how: str = "",
        seed: int = 0,
        flags: tuple[bool, ...] = (True, True, False),
    ) -> None:
        super().__init__(how, seed)
        self.upper = upper
        self.uses = {"selected": settings.write_selective_uses, "random": 1}.get(how, 0)
        self.writes_back, self.at_commit, self.delays_step = flags

    def sends(self, store: Any, what: str, saw: Any, send: Any) -> Any:
        """Note a call and the tiers' blocks before and after it; return the move that is sent, if one is."""
        before = [tuple(store.occupancy(tier)) for tier in (0, self.upper + 1)]
        move = send() if self.how != "random" or self.draw.random() < 0.5 else None
        after = [tuple(store.occupancy(tier)) for tier in (0, self.upper + 1)]
        self.answer(f"write {what}", (self.upper, saw, before, after), move is not None)
        return move

    def committed(self, store: Any, lease: int, blocks: tuple[int, int], now_ns: int) -> Any:
        """Write what was computed."""
        start, end = blocks
        middle = start + (end - start + 1) // 2
        sends = {
            "half": lambda: store.write_through(lease, start, middle, now_ns),
            "never": lambda: None,
            "selected": lambda: store.write_selected(lease, self.upper, self.uses, now_ns),
        }
        through = sends.get(self.how, lambda: store.write_through(lease, start, end, now_ns))
        return self.sends(store, "committed", (blocks, store.depth(lease), now_ns), through)

    def used(self, store: Any, lease: int, now_ns: int) -> Any:
        """Write the blocks that are used often enough."""
        return self.sends(
            store,
            "used",
            (store.depth(lease), now_ns),
            lambda: store.write_selected(lease, self.upper, self.uses, now_ns) if self.uses else None,
        )

    def arrived(self, store: Any, move: int, now_ns: int) -> Any:
        """Write further down the blocks that arrive from above."""
        on = self.how in ("through", "random")
        return self.sends(store, "arrived", now_ns, lambda: store.write_on(move, now_ns) if on else None)


WRITES = ["through", "selected", "half", "random", "never"]


class Router(Own):
    """Chooses by the request's number, or the first machine by its load, its queue or what it has; or one of all."""

    def __init__(self, view: Any, how: str = "", seed: int = 0) -> None:
        super().__init__(how, seed)
        self.view = view

    def choose(self, sequence: Any) -> int:
        """Return the number of a machine."""
        machines = len(self.view.replicas)
        if self.how == "request":
            given = sequence.request % machines
        elif self.how in ("idle", "short"):
            loads = self.view.requests() if self.how == "idle" else self.view.queued_tokens()
            given = loads.index(min(loads))
        elif self.how == "found":
            found = self.view.look(sequence).found_blocks
            given = found.index(max(found))
        else:
            given = self.cut(0, machines - 1)
        return self.answer("router", sequence.request, given)


ROUTERS = ["request", "idle", "short", "found", *CUTS]


class Scaling(Own):
    """Wants machines by what waits, what is open or what arrived; or three."""

    def __init__(self, settings: Any, how: str = "", seed: int = 0) -> None:
        super().__init__(how, seed)

    def wanted(self, state: Any) -> int:
        """Return the number of machines that are wanted."""
        wanted = {
            "waiting": state.machines + (1 if state.waiting > 2 * state.serving else -1),
            "open": -(-(state.waiting + state.running) // 3),
            "arrived": 1 + state.arrived // 2,
        }
        return self.answer("scaling", tuple(state), max(wanted.get(self.how, 3), 1))


SCALINGS = ["waiting", "open", "arrived"]


def of_hits(b: Any, now: int) -> Any:
    """Evict what was used least, the deepest of it first."""
    return b.hits, -b.depth, b.last_use


def of_age(b: Any, now: int) -> Any:
    """Evict what came first, by the remainder of its number."""
    return b.created, b.id % 7


def of_now(b: Any, now: int) -> Any:
    """Evict by how long ago the last use was, which changes all the time."""
    return (now - b.last_use) % 3


def of_number(b: Any, now: int) -> Any:
    """Evict in an order that has nothing to do with use."""
    return (b.id * 2654435761) % 1009


class Oldest:
    """Evicts the leaf that was used longest ago."""

    mode = "leaves"

    def __init__(self) -> None:
        self.used: dict[int, tuple[int, int, int]] = {}

    def on_insert(self, b: Any, now: int) -> None:
        """Note a use."""
        self.used[b.id] = (now, -b.depth, b.id)

    on_hit = on_insert

    def victims(self, n: int, now: int, pinned: Any) -> list[int] | None:
        """Name one block."""
        free = [entry for block, entry in self.used.items() if block not in pinned]
        return [min(free)[2]] if free else None

    def on_remove(self, b: Any, now: int) -> None:
        """Forget a block."""
        del self.used[b.id]


EVICTIONS = ["of_hits", "of_age", "of_now", "of_number", "Oldest"]
