"""Routers by turn, chance, session or load, and routers that weigh a prefix against load (semantics 5)."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.rng import stream
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.in_core import CoreRule, FleetLook, seen_by_core
from kvcache_sim.serving.sequence import Arrival


class Ties:
    """Tie-breaking: of equal machines the least often chosen so far, then the lowest number.

    Counts every choice it returns, so a router must return that choice. Idle machines, most of a large fleet,
    take turns instead of leaving all requests to the first.
    """

    def __init__(self, machines: int) -> None:
        self._chosen = [0] * machines

    def among(self, machines: Sequence[int]) -> int:
        """Return the next of equal machines, given in ascending order."""
        chosen = machines[0] if len(machines) == 1 else min(machines, key=self._chosen.__getitem__)
        self._chosen[chosen] += 1
        return chosen

    def least(self, costs: Sequence[float]) -> int:
        """Return the machine of the smallest cost; ``costs`` by machine."""
        smallest = min(costs)
        return self.among([machine for machine, cost in enumerate(costs) if cost == smallest])


class Tied:
    """A router that compares all machines, with ties broken by ``Ties``."""

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ties = Ties(len(view.replicas))


class RoundRobin:
    """Each machine in turn.

    Why: Needs neither loads nor caches: a baseline.
    Example: Of three machines requests 1 to 4 go to 0, 1, 2 and 0.
    Source: ``round_robin`` of sgl-model-gateway.
    """

    needs = Needs()

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._machines = len(view.replicas)
        self._next = 0

    def choose(self, sequence: Arrival) -> int:
        """Return the next machine."""
        chosen = self._next
        self._next = (chosen + 1) % self._machines
        return chosen

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core, if the core can read the view's data."""
        return seen_by_core(self._view, "round-robin")


class RandomChoice:
    """A machine drawn from the stream ``router`` of the run's seed.

    Why: Gateways that share no state even out by numbers alone.
    Example: Of four machines each serves about a quarter of many requests.
    Source: ``random`` of sgl-model-gateway.
    """

    needs = Needs()

    def __init__(self, view: RouterView) -> None:
        self._machines = len(view.replicas)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return a machine drawn at random."""
        return int(self._draw.integers(self._machines))


class LeastLoaded(Tied):
    """The machine with the fewest queued prompt tokens; ties by ``Ties``.

    Why: A short queue of prompt tokens is a short TTFT where little is reused.
    Example: Queues of 3,000 and 500 prompt tokens: the second machine.
    Source: kvsim's own measure; gateways count requests.
    """

    needs = Needs(engine_loads=True, load_alone=True)

    def choose(self, sequence: Arrival) -> int:
        """Return the least loaded machine."""
        return self._ties.least(self._view.loads.queued_tokens())

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core, if the core can read the view's data."""
        return seen_by_core(self._view, "least-loaded")


class SessionAffinity:
    """The machine of the session; first requests and requests without a session go to the least loaded.

    Why: A session's KV is where its last turn ran, found without a look-up.
    Example: A session that began on machine 2 stays there, however long its queue.
    Source: sticky sessions of gateways, such as llm-d's ``session-affinity-scorer``.
    """

    needs = Needs(engine_loads=True)

    def __init__(self, view: RouterView) -> None:
        self._first = LeastLoaded(view)
        self._machine: dict[int, int] = {}

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the request's session."""
        chosen = self._machine.get(sequence.session)
        if chosen is None:
            chosen = self._first.choose(sequence)
            if sequence.session >= 0:
                self._machine[sequence.session] = chosen
        return chosen


class PowerOfTwo:
    """The less loaded of two different machines drawn at random, the first of equals.

    Loads are the shares of the KV caches in use if the machines are polled (``router.view.interval``), else
    the unfinished requests sent there, which the router counts itself. Draws: the stream ``router``.

    Why: Two looks avoid the longest queues, and old reports do not send everyone to one machine.
    Example: Machines 3 and 7 are drawn with 12 and 4 requests: 7.
    Source: ``power_of_two`` of sgl-model-gateway and of lightseekorg/smg at 73da68ca9 (power_of_two.rs),
    which compares reported use if both machines have a report; polled every 5 to 10 s there.
    """

    needs = Needs(engine_loads=True, load_alone=True)

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._machines = len(view.replicas)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the less loaded of two."""
        n = self._machines
        if n == 1:
            return 0
        first = int(self._draw.integers(n))
        second = (first + 1 + int(self._draw.integers(n - 1))) % n
        loads = self._loads()
        return first if loads[first] <= loads[second] else second

    def _loads(self) -> list[int] | list[float]:
        scraped = self._view.scraped
        return scraped.occupancy().kv_use if scraped is not None and scraped.looks else self._view.requests()


class LongestPrefix(Tied):
    """The longest found prefix, among the least loaded machines when largest / smallest load > threshold.

    Load is unfinished requests. Equal prefixes go to the smaller load, then by ``Ties``.

    Why: The machine with most of a prompt computes least; a threshold keeps one machine from all requests.
    Example: Prefixes of 40 and 10 blocks, loads of 6 and 2: the first with a threshold of 4, the second with
    2.
    Source: Qin et al., Mooncake, FAST 2025 (semantics 5).
    """

    needs = Needs(caches=True, engine_loads=True, keys=("load_threshold",))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the longest found prefix."""
        look, threshold = self._view.look, self._view.settings.load_threshold
        if isinstance(look, FleetLook):
            live = self._view.scraped is None and self._view.promised is None
            return look.longest(sequence, threshold, None if live else self._view.loads.requests())
        loads = self._view.loads.requests()
        return self._ties.among(equally_long(look(sequence).found_blocks, loads, threshold))

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core, if the core can read the view's data."""
        return seen_by_core(self._view, "longest-prefix", self._view.settings.load_threshold)


def equally_long(found: Sequence[int], loads: Sequence[int], threshold: float) -> list[int]:
    """Return the machines with the longest prefix and, of these, the smallest load.

    If the largest load is above ``threshold`` times the smallest, only the least loaded are candidates. The
    native core has the same rule.
    """
    least = min(loads)
    candidates: Sequence[int] = range(len(loads))
    if max(loads) > threshold * least:
        candidates = [m for m, load in enumerate(loads) if load == least]
    longest = max([found[m] for m in candidates])
    candidates = [m for m in candidates if found[m] == longest]
    least = min([loads[m] for m in candidates])
    return [m for m in candidates if loads[m] == least]


class PrefillCost(Tied):
    """The smallest (prompt tokens not cached there) × (requests there, this request included).

    Ties by ``Ties``.

    Why: Weighs cached tokens against the queue without a threshold to tune.
    Example: 4,000 new tokens × 1 request, 1,000 × 3: the second machine.
    Source: kvsim's own; LMetric (arXiv 2603.15202) has the same product.
    """

    needs = Needs(caches=True, engine_loads=True)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest product."""
        new = self._view.new_prefill_tokens(sequence, self._view.look(sequence).found_blocks)
        costs = [tokens * (load + 1) for tokens, load in zip(new, self._view.loads.requests(), strict=True)]
        return self._ties.least(costs)

    def in_core(self) -> CoreRule | None:
        """Return the same rule of the core, if the core can read the view's data."""
        return seen_by_core(self._view, "prefill-cost", self._view.block_size_tokens)


class PrefillTime(Tied):
    """The smallest (time to load and compute the prompt there) × (requests there, this request included).

    kvsim's own rule, ``prefill-cost`` in time, which charges loads: the compute of the tokens not cached
    there, and the blocks on lower tiers over their channels, behind what is queued on them. The machine's
    fetch policy decides what is loaded. Other routers credit a block on a lower tier by a fixed part, however
    slow or busy its link is. Ties by ``Ties``.

    Why: A prefix on a slow link can cost more than computing it: bytes and queues decide, not a fixed credit.
    Example: 1 s to compute, or 0.4 s to load and compute, of one request each: the second machine.
    Source: kvsim's own rule.
    """

    needs = Needs(caches=True, estimates=True, clock=True)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest product."""
        look = self._view.look
        assert isinstance(look, FleetLook), "a router that estimates has no index of its own"
        times = zip(look.prefill_times(sequence), self._view.requests(), strict=True)
        return self._ties.least([time_ns * (requests + 1) for time_ns, requests in times])


class OverlapCost(Tied):
    """The smallest ``overlap_weight`` × prefill blocks + decode blocks; temperature 0: always the smallest.

    Prefill blocks, of this request and of requests sent there without a first token yet: prompt tokens to
    compute over the block size, and the credit that blocks on lower tiers lack compared with GPU blocks (they
    are loaded first: a quarter of a block on the cpu, three quarters on the disk). Without the loads of
    waiting requests, a machine whose queue finds everything on its CPU tier would look idle, and would
    receive every request that finds a prefix there. Decode blocks: blocks that running requests hold on the
    GPU, and the blocks that this request adds. Blocks that the queue finds on the GPU do not count: prompts
    that share a prefix would count it once each, and sessions would leave their machine. Ties by ``Ties``.

    Why: One sum of the work before the first token and the decode load after it.
    Example: Weight 1: 10 blocks to prefill + 40 that decode, or 30 + 15: the second machine.
    Source: the cost of NVIDIA Dynamo's KV router, over what machines hold.
    """

    needs = Needs(caches=True, keys=("overlap_weight",))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine with the smallest cost."""
        view, block, weight = self._view, self._view.block_size_tokens, self._view.settings.overlap_weight
        look = view.look(sequence)
        new = view.new_prefill_tokens(sequence, look.found_blocks)
        lacking = view.uncredited_blocks(sequence, look.found_blocks)
        costs = [
            weight * ((expected + tokens) / block + lacks) + private + -(-tokens // block)
            for expected, tokens, lacks, private in zip(
                view.expected_prefill_tokens(), new, lacking, look.private_blocks, strict=True
            )
        ]
        chosen = self._ties.least(costs)
        sequence.expected_prefill_tokens = new[chosen] + round(lacking[chosen] * block)
        return chosen
