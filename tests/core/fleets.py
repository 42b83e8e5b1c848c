"""Random fleets for routers: machines without engines, with ties, idle machines, and prompts that share
prefixes."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from kvcache_sim.serving.router.contract import Look, Occupancy, RouterView
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.serving.settings import RouterSettings

#: Tokens of a trace's id, and of a block of the machines' caches.
ID_TOKENS, BLOCK = 64, 16


@dataclass
class Machine:
    """The state of a replica that a router reads, without an engine."""

    requests: int = 0
    queued_tokens: int = 0
    expected_prefill_tokens: int = 0
    gpu_blocks: int = 40

    @property
    def load(self):
        return self

    @property
    def store(self):
        return SimpleNamespace(occupancy=lambda tier: SimpleNamespace(capacity_blocks=self.gpu_blocks))


@dataclass
class Fleet:
    """Machines, prompts and what a router sees of both; ``shake`` changes all of it but the prompts."""

    seed: int
    machines: list[Machine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        if not self.machines:
            self.machines = [
                Machine(gpu_blocks=int(self.draw.integers(2, 60))) for _ in range(self.draw.integers(1, 7))
            ]
        n = self.count = len(self.machines)
        self.found, self.report, self.now_ns = [0] * n, Occupancy([0] * n, [0] * n, [0.0] * n), 0
        self.closings = []
        self._prompts()

    def _prompts(self) -> None:
        rows, fresh = [[0]], 1
        for _ in range(60):
            base = rows[int(self.draw.integers(len(rows)))]
            keep, grow = int(self.draw.integers(0, len(base) + 1)), int(self.draw.integers(0, 4))
            row = [*base[:keep], *range(fresh, fresh + grow)] or [0]
            fresh += grow
            rows.append(row)
        self.rows = rows
        offsets = np.cumsum([0, *map(len, rows)])
        ids = np.array([i for row in rows for i in row], np.uint32)
        self.trace = SimpleNamespace(block_ids=ids, id_offsets=offsets, block_size=ID_TOKENS)
        self.tokens = [len(r) * ID_TOKENS - int(self.draw.integers(ID_TOKENS)) for r in rows]
        self.sessions = self.draw.integers(-1, 5, len(rows)).tolist()

    def shake(self) -> None:
        """Change loads, reports and caches; many of them equal, some zero."""
        draw, n = self.draw, self.count
        most = int(draw.choice([1, 3, 120]))
        for machine in self.machines:
            machine.requests, machine.queued_tokens, machine.expected_prefill_tokens = map(
                int, draw.integers(0, most, 3)
            )
        use = draw.integers(0, 5, n) / 4
        self.report = Occupancy(
            draw.integers(0, most, n).tolist(), draw.integers(0, most, n).tolist(), use.tolist()
        )
        self.now_ns += int(draw.integers(0, 50)) * 10**9

    def request(self, number: int) -> Arrival:
        """Return a request, and let what machines have of it change."""
        tokens = self.tokens[number]
        self.found = (
            self.draw.integers(0, tokens // BLOCK + 1, self.count).tolist()
            if self.draw.random() < 0.7
            else [0] * self.count
        )
        return Arrival(number, self.now_ns, tokens, 5, self.sessions[number])

    def view(self, **settings) -> RouterView:
        look = lambda sequence: Look(self.found, [0] * self.count, self.found)  # noqa: E731
        return RouterView(self.machines, RouterSettings(**settings), self.seed, BLOCK, look, (), lambda: self.report, None,
                          PromptBlocks(self.trace), lambda: self.now_ns, self.closings)  # fmt: skip

    def router(self, policy: str, **settings):
        return ROUTERS[policy](self.view(policy=policy, **settings))

    def prefix(self, number: int, tokens: int) -> tuple[int, ...]:
        """Return what names the first tokens of a prompt: its ids as far as they go, and where they end."""
        return (*self.rows[number][: -(-tokens // ID_TOKENS)], -tokens)
