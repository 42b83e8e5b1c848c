"""Plug-ins of each kind for random scenarios: constant, seeded and extreme answers, and a note of all they saw.

Named as ``support.own_plugins:Fetch(how='half', seed=3)``. ``SEEN`` holds what the calls saw and answered since
it was last emptied: two runs that call plug-ins alike leave the same.
"""

import random
from typing import Any

SEEN: list[Any] = []
#: The call at which a plug-in raises; 0: none does.
FAILS_AT = [0]


class Own:
    """A plug-in that notes its calls; ``how`` names a rule, ``seed`` what the random ones draw from."""

    def __init__(self, how: str = "", seed: int = 0) -> None:
        self.how = how
        self.draw = random.Random(seed)

    def answer(self, kind: str, saw: Any, given: Any) -> Any:
        """Note a call and return its answer."""
        SEEN.append((kind, saw, given))
        if len(SEEN) == FAILS_AT[0]:
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


class Queue(Own):
    """Orders of several forms: constant, of one number, of many, of whole numbers beyond any float."""

    def key(self, waiting: Any) -> tuple[Any, ...]:
        """Return the key of a waiting request."""
        given: tuple[Any, ...] = (self.draw.random(),)
        if self.how == "constant":
            given = ()
        elif self.how == "newest":
            given = (-waiting.arrival_ns,)
        elif self.how == "huge":
            given = (10**40 + waiting.request % 3, -waiting.cached_tokens)
        elif self.how == "long":
            given = (
                waiting.passed < 2,
                waiting.turn,
                waiting.priority,
                waiting.tokens / 7,
                True,
                waiting.request,
            )
        return self.answer("queue", tuple(waiting), given)


QUEUES = ["constant", "newest", "huge", "long", "random"]


class Admission(Own):
    """Keeps none, all, half or a random share of a finished request."""

    def kept_blocks(self, finished: Any) -> int:
        """Return how many leading blocks are kept."""
        return self.answer("admission", tuple(finished), self.cut(0, finished.blocks))


class Fetch(Own):
    """Reuses the ready blocks, all, half, a random share, or the alternative that should end first."""

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
        else:
            given = self.cut(plan.ready, plan.end)
        return self.answer("fetch", saw, given)


FETCHES = [*CUTS, "soonest"]


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
            given = min(names, key=lambda name: (channels[name].wait_ns(now), name))
        elif self.how == "unused":
            given = min(names, key=lambda name: channels[name].jobs)
        else:
            given = names[self.cut(0, len(names) - 1)]
        return self.answer("channel", (tuple(sending), saw, rates), given)


CHANNELS = ["least", "most", "random", "emptiest", "unused"]


class Write(Own):
    """Writes all blocks, blocks used twice, halves, random blocks, or none; ``flags`` are its three
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
            "selected": lambda: store.write_selected(lease, self.upper, 2, now_ns),
        }
        through = sends.get(self.how, lambda: store.write_through(lease, start, end, now_ns))
        return self.sends(store, "committed", (blocks, store.depth(lease), now_ns), through)

    def used(self, store: Any, lease: int, now_ns: int) -> Any:
        """Write the blocks that are used often enough."""
        uses = {"selected": 2, "random": 1}.get(self.how, 0)
        return self.sends(
            store,
            "used",
            (store.depth(lease), now_ns),
            lambda: store.write_selected(lease, self.upper, uses, now_ns) if uses else None,
        )

    def arrived(self, store: Any, move: int, now_ns: int) -> Any:
        """Write further down the blocks that arrive from above."""
        on = self.how in ("through", "random")
        return self.sends(store, "arrived", now_ns, lambda: store.write_on(move, now_ns) if on else None)


WRITES = ["through", "selected", "half", "random", "never"]
