"""A request while it is served: what has come out of it, and who waits for more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Ticket:
    """One sequence in the simulated cluster; simulated times in ns."""

    number: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    #: Why it ends when all of its tokens have come, and the machine that it was sent to.
    finish_reason: str = "length"
    machine: int = 0
    #: When each token came that nobody has taken yet.
    tokens_ns: list[int] = field(default_factory=list)
    tokens_out: int = 0
    #: Prompt tokens that were cached, known at the end.
    cached_tokens: int = 0
    #: Whether it has left the cluster, and whether before its last token.
    closed: bool = False
    aborted: bool = False
    #: The largest wall-clock lag of its tokens, and that of its first one.
    worst_lag_ns: int = 0
    first_lag_ns: int = -1
    _waiter: asyncio.Future[None] | None = None

    def token(self, now_ns: int) -> None:
        """Note a token."""
        self.tokens_out += 1
        self.tokens_ns.append(now_ns)
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> list[int]:
        """Return the times of further tokens as soon as there are any; none after the end."""
        while not self.tokens_ns and not self.closed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        taken, self.tokens_ns = self.tokens_ns, []
        return taken

    def late(self, lag_ns: int) -> None:
        """Note by how much a token was written after its time."""
        if self.first_lag_ns < 0:
            self.first_lag_ns = lag_ns
        self.worst_lag_ns = max(self.worst_lag_ns, lag_ns)
