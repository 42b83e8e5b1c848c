"""What a replica needs of its running batch: the native one, or the one to read (``batch``)."""

from __future__ import annotations

from typing import Protocol

from kvcache_sim.cache.store import GpuStore

#: (first tokens, finished, committed blocks (sequence, first, past the last)), each in batch order.
Ended = tuple[list[int], list[int], list[tuple[int, int, int]]]


class Batch(Protocol):
    """What a replica needs of its running batch."""

    def begin(self, store: GpuStore, now_ns: int) -> list[int] | None:
        """Share out the budget and reserve blocks; None when refused, else the moves to wait for."""
        ...

    def add(
        self, id: int, lease: int, tokens: tuple[int, int, int, int, int], last_token_ns: int | None
    ) -> int:
        """Add a sequence; ``tokens``: computed, prefill target, total, prompt, blocks. Return its chunk.

        Instead of blocks the tokens that it has room for, where room is counted in them.
        """
        ...

    def commit_last(self, store: GpuStore) -> None:
        """Share what the last added sequence will fill, where keys exist from scheduling on."""
        ...

    def pop_last(self) -> tuple[int, int, int | None] | None:
        """Take the last sequence out: (id, tokens with KV, time of its last token)."""
        ...

    def take_out(self, id: int) -> tuple[int, int, int | None] | None:
        """Take a sequence out between two steps, as ``pop_last`` does the last one."""
        ...

    def computed_tokens(self, id: int) -> int | None:
        """Return how many tokens of a running sequence have KV; None for one that does not run."""
        ...

    def step_ns(self) -> int:
        """Return the duration of the composed step."""
        ...

    def first_tokens_due(self) -> list[int]:
        """Return whose first token comes with the composed step, in batch order."""
        ...

    def start(self, store: GpuStore, now_ns: int, stall_ns: int) -> int:
        """Start the composed step; return when the batch next changes by itself."""
        ...

    def advance(self, store: GpuStore, now_ns: int) -> int:
        """Run the iterations that begin before ``now_ns``; return the end of the current one."""
        ...

    def interrupt(self, store: GpuStore, now_ns: int) -> int:
        """Cut the stretch at the end of the current iteration; return that end."""
        ...

    def end(self, store: GpuStore) -> Ended:
        """End the stretch's last iteration."""
        ...

    @property
    def begin_ns(self) -> int:
        """When the current or last iteration began."""
        ...

    @property
    def budget_left(self) -> int:
        """Tokens of the composed step that are not given away."""
        ...

    def __len__(self) -> int:
        """Return the number of running sequences."""
        ...

    @property
    def steps(self) -> int:
        """Iterations so far."""
        ...

    @property
    def generated_tokens(self) -> int:
        """Tokens generated so far."""
        ...

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        ...

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        ...

    def log_later_tokens(self) -> None:
        """Start keeping whose tokens come; iterations run one by one from then on."""
        ...

    def take_later_tokens(self) -> list[int]:
        """Return whose tokens after the first one came since the last call, in batch order."""
        ...

    def log_steps(self) -> None:
        """Start keeping every iteration."""
        ...

    def take_steps(self) -> list[tuple[int, int, int, int]]:
        """Return (begin, duration, prefill tokens, decode sequences) since the last call."""
        ...
