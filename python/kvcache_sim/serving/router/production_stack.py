"""The routers of vLLM's production stack: ``kvaware``, ``loadaware`` and the ring that both fall back to.

The ring is consistent hashing with bounded load: a key moves on from an overloaded machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b

from kvcache_sim.base.rng import stream
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival

#: Positions of one machine on the ring (hash_ring.rs of lightseekorg/smg at 73da68ca9).
VIRTUAL_NODES = 150


def position(text: str) -> int:
    """Return the position of a text on the ring: the first 8 bytes of its BLAKE2b, little-endian."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


class HashRing:
    """A ring of 2⁶⁴ positions, ``VIRTUAL_NODES`` per machine; a key belongs to the next machine clockwise.

    Gateways hash the addresses of their workers. A simulation has none and hashes ``machine k``: shares and
    spills are the same, single assignments are not.
    """

    def __init__(self, machines: int) -> None:
        positions = [(position(f"machine {m}#{i}"), m) for m in range(machines) for i in range(VIRTUAL_NODES)]
        positions.sort()
        self._positions = [ring_index for ring_index, _ in positions]
        self._owners = [machine for _, machine in positions]

    def owner(self, key: str) -> int:
        """Return the machine of a key."""
        return self._owners[bisect_left(self._positions, position(key)) % len(self._owners)]

    def clockwise(self, key: str) -> Iterator[int]:
        """Yield the machines clockwise from the position of a key, each once."""
        first, seen = bisect_left(self._positions, position(key)), set()
        for step in range(len(self._owners)):
            machine = self._owners[(first + step) % len(self._owners)]
            if machine not in seen:
                seen.add(machine)
                yield machine


class ConsistentHashing:
    """The machine of the request's key on a ring; the next machine clockwise if its load is too high.

    The key is the session; a request without a session goes to a machine drawn at random (stream ``router``).
    Load is unfinished requests; it is too high above ``max_load_skew`` times the mean. If all loads are too
    high, or ``max_load_skew`` is null, the key's own machine is chosen.

    Why: No state: every gateway sends a session to the same machine, and few sessions move if machines do.
    Example: A mean of 10 and a skew of 1.25: a machine with 13 requests is passed over.
    Source: ``bounded_consistent_hashing`` of sgl-model-gateway (bounded_consistent_hashing.rs, lines 66–150,
    at 1cfac30c); the idea: Mirrokni, Thorup and Zadimoghaddam, arXiv 1608.01350.
    """

    needs = Needs(keys=("max_load_skew",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ring = HashRing(len(view.replicas))
        self._skew = view.settings.max_load_skew
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the request's key, or the next one that is not overloaded."""
        if sequence.session < 0:
            return int(self._draw.integers(len(self._view.replicas)))
        key = str(sequence.session)
        if self._skew is not None:
            loads = self._view.requests()
            most = sum(loads) / len(loads) * self._skew
            for machine in self._ring.clockwise(key):
                if loads[machine] <= most:
                    return machine
        return self._ring.owner(key)


#: Window over which requests are counted (``--request-stats-window``), ns.
WINDOW_NS = 60 * NS_PER_S


class SentLately:
    """The machine of the session on a ring, else the machine with fewest requests in the last 60 s.

    A machine without any request so far comes first; of equals the first. Every choice has to be ``sent``.

    Source: ``_qps_routing`` and the session ring of src/vllm_router/routers/routing_logic.py, and the sliding
    windows of src/vllm_router/stats/request_stats.py, vllm-project/production-stack at a6c01db0.
    """

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._ring = HashRing(len(view.replicas))
        self._counts = [0] * len(view.replicas)
        self._seen = [False] * len(view.replicas)
        self._times: deque[tuple[int, int]] = deque()

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the session or of the smallest rate."""
        if sequence.session >= 0:
            return self._ring.owner(str(sequence.session))
        if not all(self._seen):
            return self._seen.index(False)
        begin = self._view.now_ns() - WINDOW_NS
        while self._times and self._times[0][0] < begin:
            self._counts[self._times.popleft()[1]] -= 1
        return self._counts.index(min(self._counts))

    def sent(self, machine: int) -> None:
        """Count a request."""
        self._seen[machine] = True
        self._counts[machine] += 1
        self._times.append((self._view.now_ns(), machine))


class _WithFallback:
    """A router that falls back to ``SentLately`` if no machine has enough of the prompt."""

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._other = SentLately(view)


class KvAware(_WithFallback):
    """The first machine with any block of the prompt, if at most ``kv_aware_threshold`` tokens are missing.

    Otherwise the session's machine, or the machine with fewest recent requests. Load is never considered.

    Why: Long shared prompts are worth any queue.
    Example: With a threshold of 2,000, a machine that holds 7,000 of 8,000 tokens serves the prompt.
    Source: ``KvawareRouter`` of src/vllm_router/routers/routing_logic.py, vllm-project/production-stack at
    a6c01db0. The source takes the first machine of LMCache's reply, in the order of a hash map; here it is
    the lowest number.
    Cost: one lookup on all machines.
    """

    needs = Needs(caches=True, clock=True, keys=("kv_aware_threshold",))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine that has the prompt, or the fallback."""
        view, prompt = self._view, sequence.prompt_num_tokens
        found = view.look(sequence).found_blocks
        first = next((machine for machine, blocks in enumerate(found) if blocks), None)
        least = max(prompt - view.settings.kv_aware_threshold_tokens, 0)
        if first is None or found[first] * view.block_size_tokens < least:
            first = self._other.choose(sequence)
        self._other.sent(first)
        return first


class LoadAware(_WithFallback):
    """The greatest share of the prompt found there − ``load_weight`` × (load − mean) / max(1, mean load).

    Load is unfinished requests; the first of equals. If no machine has any block of the prompt: the session's
    machine, or the machine with fewest recent requests.

    Why: As ``kvaware``, but a busy machine loses to one with less of the prompt.
    Example: Weight 0.5: a share of 0.9 at load 12 of a mean of 8 gives 0.65, a share of 0.7 at 8 gives 0.7.
    Source: the ``loadaware`` routing of pull request 1035 of vllm-project/production-stack. Ties go to
    the alphabetically first URL there, to the lowest number here.
    Cost: one lookup on all machines.
    """

    needs = Needs(caches=True, clock=True, keys=("load_weight",))

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the greatest score."""
        view, prompt = self._view, max(sequence.prompt_num_tokens, 1)
        found = view.look(sequence).found_blocks
        if any(found):
            loads, weight, block = view.requests(), view.settings.load_weight, view.block_size_tokens
            mean = sum(loads) / len(loads)
            scores = [
                min(blocks * block, prompt) / prompt - weight * (load - mean) / max(1.0, mean)
                for blocks, load in zip(found, loads, strict=True)
            ]
            chosen = scores.index(max(scores))
        else:
            chosen = self._other.choose(sequence)
        self._other.sent(chosen)
        return chosen
