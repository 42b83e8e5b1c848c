"""Random live runs: a scenario, and what clients do to it, from one seed; what came out of each."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation.live import requests_of
from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.workload.trace import NOT_GIVEN, Trace

from support import plugin_features, scenarios
from support.product.live import BlockNumbers, LiveSimulation

BLOCK = 16
#: What ``live/metrics.py`` reads of a request that has left.
_READ = """
    request arrival_ns machine preemptions first_token_ns admitted_ns queue_ns
    cached_prefix_length_used cached_tokens_by_source status
""".split()


#: What a live run lacks of a drawn scenario: its requests, what rows of a trace say of them, plans, runs without
#: time, and a context: what does not fit is rejected without a word.
_NOT_LIVE = (
    *("workload", "trace", "retention", "tenants", "models", "adapters", "fleet"),
    *("replica.instant", "replica.max_model_len", "replica.on_overflow"),
)
_FEATURES = ["vllm-pool", "vllm", "vllm", "shared-pool", "remote-reads", "read-buffers", "drafts", "ranks"]
#: Capacities that long chats fill, in blocks.
_CAPACITIES = {"gpu": [60, 90, 300, 3000], "cpu": [100, 400, 2000], "disk": [100, 400, 2000]}


def drawn(seed: int) -> list[str]:
    """Return the overrides of one random scenario, most of which can be served."""
    draw = random.Random(seed)
    settings = scenarios.drawn(seed, [draw.choice(_FEATURES)] if draw.random() < 0.7 else []).settings
    plugin = plugin_features.OWN
    own = {
        key: value
        for key, value in settings.items()
        if not key.startswith(_NOT_LIVE) and plugin not in str(value)
    }
    for tier, blocks in _CAPACITIES.items():
        if f"tiers.{tier}.capacity" in own:
            own[f"tiers.{tier}.capacity"] = f"{draw.choice(blocks)} blocks"
    own |= {"cache.block_size": BLOCK, "trace.path": "unused", "trace.block_size": BLOCK}
    return scenarios.Scenario(own, {}, ()).arguments()[1::2]


class Notified:
    """A listener that records its notifications in order."""

    def __init__(self) -> None:
        self.tokens_came: list[tuple[int, int]] = []
        self.left: list[tuple[int, tuple[object, ...]]] = []
        self.open: set[int] = set()
        self.answers: dict[int, int] = {}

    def tokens(self, requests: Any, now_ns: int) -> None:
        for request in requests:
            assert request in self.open
            self.answers[request] = self.answers.get(request, 0) + 1
            self.tokens_came.append((int(request), now_ns))

    def closed(self, sequence: Any, now_ns: int) -> None:
        self.open.remove(sequence.request)
        read = [getattr(sequence, name) for name in _READ]
        self.left.append((now_ns, tuple(getattr(value, "value", value) for value in read)))


class Driven:
    """One live run: its clients' chats, aborts and chosen machines, and what the server does meanwhile."""

    def __init__(self, settings: ClusterSettings, seed: int, options: RunOptions | None = None) -> None:
        self.notified = Notified()
        more = () if options is None else (options,)
        self.settings = settings
        self.simulation = LiveSimulation(settings, self.notified, *more)
        self.rows: list[tuple[int, int, int, list[int]]] = []
        self.aborted_after: dict[int, int] = {}
        #: Whether a replay of the arrivals can do the same: no machine was chosen, no cache was cleared.
        self.can_replay = True
        #: What the simulation answered, and the blocks on each GPU, in order.
        self.said: list[object] = []
        self._draw, self._blocks = random.Random(seed), BlockNumbers(BLOCK, keep_tokens=False)
        self._ran_to = 0
        replicas = self.simulation.replicas
        self._most_tokens = max(n for n in range(600, 3000, 50) if all(r.can_ever_hold(n) for r in replicas))
        self._chats: list[list[int]] = [[] for _ in range(6)]
        self.simulation.cluster.start()
        self.simulation.sampler.start()

    def go(self) -> Run:
        """Process all events and return the run."""
        draw = self._draw
        chooses, clears, forgets = (draw.random() < chance for chance in (0.2, 0.1, 0.3))
        for _ in range(draw.randint(10, 45)):
            self._wait(draw.choice([1, 1_000_000, 20_000_000, 300_000_000]))
            self._submit(chooses and draw.random() < 0.5)
            if draw.random() < 0.25:
                self._abort()
            if forgets and draw.random() < 0.3:
                kept = self.simulation.forget(sorted(self.notified.open))
                if kept is not None:
                    self._blocks.keep(kept)
                self.said.append(("forget", None if kept is None else sorted(kept)))
            if clears and draw.random() < 0.2:
                held = [cache.occupancy(0) for cache in self.simulation.caches]
                cleared = self.simulation.clear()
                assert cleared or held == [cache.occupancy(0) for cache in self.simulation.caches]
                self.can_replay &= not cleared
                self.said.append(("clear", cleared))
        self._wait(draw.choice([10**8, 10**11]))
        run = self.simulation.end()
        assert not self.notified.open
        return run

    def _wait(self, most_ns: int) -> None:
        """Run some time on, in one go or from event to event, as the clock has it."""
        until = self._ran_to + self._draw.randint(0, most_ns)
        if self._draw.random() < 0.5:
            while (due := self.simulation.engine.next_ns) is not None and self._ran_to < due <= until:
                self._run_to(due)
        self._run_to(until)
        caches = self.simulation.caches
        self.said.append([cache.occupancy(0) for cache in caches])

    def _run_to(self, until: int) -> None:
        self.simulation.run_to(until)
        self._ran_to = max(self._ran_to, until)
        assert all(time <= self._ran_to for _, time in self.notified.tokens_came[-1:])

    def _submit(self, chooses: bool) -> None:
        draw, simulation = self._draw, self.simulation
        chat = draw.choice(self._chats)
        if len(chat) > self._most_tokens - 600:  # what does not fit a machine is rejected without a word
            chat.clear()
        chat += [draw.randrange(3)] * draw.choice([0, 16, 160]) + [
            draw.randrange(9) for _ in range(draw.randint(1, 300))
        ]
        answer = [draw.randrange(9) for _ in range(draw.randint(1, draw.choice([3, 90])))]
        number, at = simulation.fed, self._ran_to + draw.choice([1, 1000])
        ids = self._blocks.number([*chat, *answer])
        machine = None
        if chooses:
            machine = draw.randrange(len(simulation.cluster.pools.routed))
            self.can_replay = False
        row = (at, len(chat), len(answer), ids)
        self.rows.append(row)
        self.notified.open.add(number)
        simulation.feed(requests_of(BLOCK, [row], len(chat) + len(answer)), self._blocks.given, machine)
        self._run_to(at)
        self.said.append(simulation.last_machine)
        chat += answer

    def _abort(self) -> None:
        request = self._draw.randrange(self.simulation.fed)
        if request in self.notified.open and request not in self.aborted_after:
            at = self._ran_to + self._draw.choice([1, 5_000_000])
            self.aborted_after[request] = at - self.rows[request][0]
            self.simulation.abort(request, at)
            self._run_to(at)

    def trace(self) -> Trace:
        """Return the arrivals as a trace, as their log would be read."""
        parts = requests_of(BLOCK, self.rows, 0)
        named = np.array([prompt + answer for _, prompt, answer, _ in self.rows], np.int64)
        after = np.full(len(self.rows), NOT_GIVEN, np.int64)
        for request, after_ns in self.aborted_after.items():
            after[request] = after_ns
        return replace(parts, named_tokens=named, abort_after_ns=after if self.aborted_after else after[:0])


def settings_of(seed: int) -> ClusterSettings:
    """Return the settings of a random scenario; UsageError where there is no such one."""
    return load_scenario(None, drawn(seed)).settings


def result(run: Run) -> dict[str, object]:
    """Return what a run is compared by: digests, rows, counters, channels and tiers."""
    return {
        "digests": (run.digest_events, run.digest_results),
        "rows": {name: column.tolist() for name, column in run.requests.items()},
        "counters": {name: value for name, value in run.counters.items()},
        "itl": (run.itl_ns.values_ns.tolist(), run.itl_ns.counts.tolist()),
        "channels": [str(use) for use in run.channels],
        "tiers": [str(use) for use in run.tiers],
    }
