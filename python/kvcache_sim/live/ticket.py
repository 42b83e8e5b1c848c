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
    #: When its last token came, -1: none has.
    last_ns: int = -1
    #: Whether its client wants each token as it comes.
    streams: bool = True
    _waiter: asyncio.Future[None] | None = None

    def token(self, now_ns: int) -> int:
        """Note a token; return the time since the one before, -1 for the first."""
        gap = now_ns - self.last_ns if self.last_ns >= 0 else -1
        self.last_ns = now_ns
        self.tokens_out += 1
        if self.streams:
            self.tokens_ns.append(now_ns)
            waiter = self._waiter
            if waiter is not None:  # as wake, without the call: once a token
                self._waiter = None
                if not waiter.done():
                    waiter.set_result(None)
        return gap

    def wake(self) -> None:
        """Let whoever waits look again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def taken(self) -> list[int]:
        """Return the times of the tokens that nobody has taken yet, and take them."""
        taken, self.tokens_ns = self.tokens_ns, []
        return taken

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done with the next token, or with the end."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    async def ended(self) -> None:
        """Return once it has left the cluster; nobody looks at its tokens before."""
        self.streams = False
        while not self.closed:
            await self.waiter()

    def late(self, lag_ns: int) -> None:
        """Note by how much a token was written after its time."""
        if self.first_lag_ns < 0:
            self.first_lag_ns = lag_ns
        self.worst_lag_ns = max(self.worst_lag_ns, lag_ns)
