"""Random fleets for routers: machines without engines, with ties, idle machines, and prompts that share
prefixes."""

from dataclasses import dataclass, field
from typing import Any

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
        return self

    def occupancy(self, tier):
        return self

    @property
    def capacity_blocks(self):
        return self.gpu_blocks


@dataclass
class Copies:
    """The copies of every prompt on a machine with lower tiers: (tier, first block, end, 0) each."""

    parts: list[tuple[int, int, int, int]]

    def match_prefix(self, request, found):
        return self.parts


@dataclass
class Ids:
    """The ids of prompts, as a trace has them."""

    block_ids: np.ndarray
    id_offsets: np.ndarray
    block_size: int = ID_TOKENS


@dataclass
class Fleet:
    """Machines, prompts and what a router sees of both; ``shake`` changes all of it but the prompts."""

    seed: int
    machines: list[Machine] = field(default_factory=list)
    #: Further fields of what a router sees.
    parts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        if not self.machines:
            self.machines = [
                Machine(gpu_blocks=int(self.draw.integers(2, 60))) for _ in range(self.draw.integers(1, 7))
            ]
        n = self.count = len(self.machines)
        self.found, self.report, self.now_ns = [0] * n, Occupancy([0] * n, [0] * n, [0.0] * n), 0
        self.closings, self.on_gpu = [], None
        self._prompts()

    def _prompts(self) -> None:
        rows, fresh = [[0]], 1
        for _ in range(60):
            base = rows[int(self.draw.integers(len(rows)))]
            keep, grow = int(self.draw.integers(0, len(base) + 1)), int(self.draw.integers(0, 4))
            row = [*base[:keep], *range(fresh, fresh + grow)] or [0]
            fresh += grow
            rows.append(row)
        self.given(rows, [len(r) * ID_TOKENS - int(self.draw.integers(ID_TOKENS)) for r in rows])
        self.sessions = self.draw.integers(-1, 5, len(rows)).tolist()

    def given(self, rows: list[list[int]], tokens: list[int]) -> None:
        """Take prompts of these ids and tokens."""
        self.rows, self.tokens = rows, tokens
        ids = np.array([i for row in rows for i in row], np.uint32)
        self.trace = Ids(ids, np.cumsum([0, *map(len, rows)]))

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
        look = lambda sequence: Look(self.found, [0] * self.count, self.on_gpu or self.found)  # noqa: E731
        return RouterView(
            self.machines,
            RouterSettings(**settings),
            self.seed,
            BLOCK,
            look,
            report=lambda: self.report,
            prompts=PromptBlocks(self.trace),
            now_ns=lambda: self.now_ns,
            when_closed=self.closings,
            **self.parts,
        )

    def router(self, policy: str, **settings):
        return ROUTERS[policy](self.view(policy=policy, **settings))

    def prefix(self, number: int, tokens: int) -> tuple[int, ...]:
        """Return what names the first tokens of a prompt: its ids as far as they go, and where they end."""
        return (*self.rows[number][: -(-tokens // ID_TOKENS)], -tokens)
