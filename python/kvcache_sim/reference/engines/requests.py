"""What the references replay: the requests of a trace with the keys of their blocks, one after another."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvcache_sim.replay.block_keys import BlockKeys, Key


@dataclass(frozen=True, slots=True)
class Requests:
    """Prompt tokens and tokens filled at the end, a request each; ``window`` of them overlap (0: none)."""

    keys: BlockKeys
    input_tokens: list[int]
    total_tokens: list[int]
    window: int

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.keys.block_size_tokens

    def limit(self, request: int) -> int:
        """Return how many leading blocks may hit: the last token is always computed (semantics 1)."""
        return (self.input_tokens[request] - 1) // self.block_size

    def prompt(self, request: int) -> list[Key]:
        """Return the keys of the full blocks of the prompt."""
        return self.keys.keys(request, self.input_tokens[request] // self.block_size)

    def whole(self, request: int) -> list[Key]:
        """Return the keys of all full blocks at the end."""
        return self.keys.keys(request, self.total_tokens[request] // self.block_size)


@dataclass(slots=True)
class Overlap:
    """Who runs, the oldest first; without a window a request ends before the next begins."""

    window: int
    running: deque[int] = field(default_factory=deque)

    def before_start(self) -> list[int]:
        """Return who must end before another starts."""
        return [self.running.popleft()] if self.window and len(self.running) == self.window else []

    def start(self, request: int) -> list[int]:
        """Start a request and return who ends at once."""
        self.running.append(request)
        return [] if self.window else [self.running.popleft()]
