"""Turns of models and slots of adapters beside plain walks from instant to instant."""

from __future__ import annotations

import os
import random

import pytest
from kvcache_sim.engine import ARRIVAL, NO_MACHINE, Engine
from kvcache_sim.serving.models.adapters import NO_ADAPTER, Adapters
from kvcache_sim.serving.models.settings import AdapterSettings, ModelsSettings, ServedModel
from kvcache_sim.serving.models.turns import Turns
from kvcache_sim.serving.router.contract import Held
from kvcache_sim.serving.sequence import Arrival

EXAMPLES = int(os.environ.get("KVSIM_EXAMPLES", "25"))


class _Machine:
    """What waits and holds its requests for a time each; tells when each was let in."""

    def __init__(self, make, arrivals, service_ns):
        """``arrivals``: (time, machine) by request."""
        self.engine, self.entered, self.service_ns = Engine(8), {}, service_ns
        held = Held([0] * 8, [0] * 8)
        self.held, self.most_held = held, 0
        self.holder = make(held, self.engine)
        self.holder.let_in_by(self._enter)
        for request, (at_ns, machine) in enumerate(arrivals):
            self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, self._arrive, (request, machine))
        self.engine.run()

    def _arrive(self, came):
        request, machine = came
        if self.holder.arrive(machine, Arrival(request, self.engine.now_ns, 9, 1, -1)):
            self._enter(machine, request)
        self.most_held = max(self.most_held, sum(self.held.requests))
        assert sum(self.held.tokens) == 9 * sum(self.held.requests)

    def _enter(self, machine, request):
        assert request not in self.entered
        self.entered[request] = self.engine.now_ns
        at_ns = self.engine.now_ns + self.service_ns[request]
        self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, lambda _: self.holder.closed(request))


def turns_by_hand(arrivals, service, change):
    """Machines 0, 1, 2 on one host, 0 awake; a walk from instant to instant. ``change[old][new]``: its time."""
    awake, waiting, ends, entered, until, now = 0, [], [], {}, None, 0
    came, order = 0, sorted(range(len(arrivals)), key=lambda n: arrivals[n][0])
    while len(entered) < len(arrivals):
        while came < len(order) and arrivals[order[came]][0] == now:
            request = order[came]
            if arrivals[request][1] == awake and not waiting and until is None:
                entered[request] = now
                ends.append(now + service[request])
            else:
                waiting.append(request)
            came += 1
        ends = [end for end in ends if end > now]
        if until is None and not ends and waiting:
            wanted = arrivals[waiting[0]][1]
            until = now + change[awake][wanted] if wanted != awake else now
            awake = wanted
        if until == now:
            until = None
            for request in [own for own in waiting if arrivals[own][1] == awake]:
                waiting.remove(request)
                entered[request] = now
                ends.append(now + service[request])
        now += 1
    return entered


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_turns_written_again(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 14)
    arrivals = sorted((draw.randint(0, 40), draw.randrange(3)) for _ in range(count))
    service = [draw.randint(1, 9) for _ in range(count)]
    sleeps, wakes = [[draw.randint(0, 4) for _ in range(3)] for _ in range(2)]
    models = [ServedModel(str(n), 1, sleeps[n], wakes[n], 0 if n else None) for n in range(3)]
    emptied = []

    def make(held, engine):
        return Turns(ModelsSettings(tuple(models)), held, lambda *served: emptied.append(served), engine)

    found = _Machine(make, arrivals, service)
    change = [[sleeps[old] + wakes[new] for new in range(3)] for old in range(3)]
    assert found.entered == turns_by_hand(arrivals, service, change)
    assert sum(found.held.requests) == 0
    assert found.holder.counts["changes"] == len(emptied)
    served = [request for _, requests in emptied for request in requests]
    assert len(served) == len(set(served))
    assert all(arrivals[request][1] == machine for machine, requests in emptied for request in requests)


class SlotsByHand:
    """One machine, from instant to instant; slots as a list, the least recently used first."""

    def __init__(self, adapter_of, service, slots, load):
        self.adapter_of, self.service, self.slots, self.load = adapter_of, service, slots, load
        self.recent, self.users = [], {}
        #: By adapter on its way when it comes, and who waits for it.
        self.ready, self.pending = {}, {}
        self.waiting, self.ends, self.link = [], [], 0
        self.entered = {}

    def use(self, adapter, more):
        self.users[adapter] = self.users.get(adapter, 0) + more
        if adapter in self.recent:
            self.recent.remove(adapter)
        self.recent.append(adapter)

    def enter(self, request, now):
        self.entered[request] = now
        self.ends.append((now + self.service[request], request))

    def arrive(self, request, now):
        own = self.adapter_of[request]
        if own == NO_ADAPTER:
            self.entered[request] = now
        elif own in self.recent and own not in self.ready:
            self.use(own, 1)
            self.enter(request, now)
        else:
            self.waiting.append(request)
            self.give(now)

    def give(self, now):
        waiting, self.waiting = self.waiting, []
        for request in waiting:
            own = self.adapter_of[request]
            if own in self.recent:
                self.use(own, 1)
                if own in self.ready:
                    self.pending[own].append(request)
                else:
                    self.enter(request, now)
                continue
            idle = [other for other in self.recent if not self.users[other]]
            if len(self.recent) == self.slots:
                if not idle:
                    self.waiting.append(request)
                    continue
                self.recent.remove(idle[0])
            self.users[own] = 0
            self.use(own, 1)
            self.link = max(self.link, now) + self.load
            self.ready[own], self.pending[own] = self.link, [request]

    def instant(self, arriving, now):
        """Arrivals first, then ends in the order in which requests were let in, loads, and who waits."""
        for request in arriving:
            self.arrive(request, now)
        ended = [request for end, request in self.ends if end == now]
        for request in ended:
            self.use(self.adapter_of[request], -1)
        self.ends = [pair for pair in self.ends if pair[0] > now]
        for own in [own for own in self.ready if self.ready[own] == now]:
            del self.ready[own]
            for request in self.pending.pop(own):
                self.enter(request, now)
        if ended:
            self.give(now)


def adapters_by_hand(arrivals, adapter_of, service, slots, load):
    """When each request is let in, machine by machine."""
    entered = {}
    for machine in {machine for _, machine in arrivals}:
        mine = [n for n, (_, own) in enumerate(arrivals) if own == machine]
        by_hand, now = SlotsByHand(adapter_of, service, slots, load), 0
        while len(by_hand.entered) < len(mine):
            by_hand.instant([n for n in mine if arrivals[n][0] == now], now)
            now += 1
        entered |= by_hand.entered
    return entered


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_slots_written_again(seed):
    draw = random.Random(seed)
    count, slots, load = draw.randint(1, 16), draw.randint(1, 3), draw.randint(1, 5)
    arrivals = sorted((draw.randint(0, 50), draw.randrange(2)) for _ in range(count))
    service = [draw.randint(1, 12) for _ in range(count)]
    adapter_of = [draw.randrange(-1, 5) for _ in range(count)]

    def make(held, engine):
        return Adapters(AdapterSettings(slots, load), adapter_of, held, engine)

    found = _Machine(make, arrivals, service)
    assert found.entered == adapters_by_hand(arrivals, adapter_of, service, slots, load)
    assert sum(found.held.requests) == 0
    assert found.holder.counts["load_ns"] == load * found.holder.counts["loads"]
