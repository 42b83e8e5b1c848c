"""Conversations that outgrow the context window or the session's KV allowance (seed 000, 4.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws
from kvcache_sim.workload.generate.dialogue import Turns, dialogue, new_inputs, think_gaps
from kvcache_sim.workload.generate.fields import choice, count, times, tokens
from kvcache_sim.workload.generate.lengths import Constant, Lengths
from kvcache_sim.workload.generate.settings import Workload


@dataclass(frozen=True, slots=True)
class Overflow(Workload):
    """Settings: prompts are held to ``window_tokens``, or to ``session_kv_tokens`` where that is less.

    A prompt over the limit is treated as ``on_overflow`` says: ``slide`` keeps the first
    ``kept_head_tokens`` and the newest tokens up to the limit; ``stop`` ends the conversation before it;
    ``summarise`` puts a new text of ``summary_tokens`` for all history after the kept head.
    """

    window_tokens: int = count(8192)
    session_kv_tokens: int = count(0, minimum=0)  # 0: no allowance of its own
    on_overflow: str = choice("slide", ("slide", "stop", "summarise"))
    kept_head_tokens: int = count(0, minimum=0)
    summary_tokens: int = count(512)
    turns: Lengths = tokens(Constant(16))
    think_time: Lengths = times(Constant(10 * 10**9))
    first_input_tokens: Lengths = tokens(Constant(1024))
    new_input_tokens: Lengths = tokens(Constant(512))

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        if self.window_tokens < self.block_size:
            raise UsageError(
                "smaller than one block",
                where="workload.window_tokens",
                got=str(self.window_tokens),
                expected=f"at least block_size ({self.block_size})",
            )
        if self.session_kv_tokens >= self.window_tokens:
            raise UsageError(
                "has no effect: not below the window",
                where="workload.session_kv_tokens",
                got=str(self.session_kv_tokens),
            )
        rest = self.summary_tokens if self.on_overflow == "summarise" else 0
        if self.kept_head_tokens + rest >= self.limit_tokens:
            raise UsageError(
                "the kept head leaves no room for new input",
                where="workload.kept_head_tokens",
                got=str(self.kept_head_tokens),
                expected=f"less than {self.limit_tokens - rest}",
            )

    @property
    def limit_tokens(self) -> int:
        """The longest prompt."""
        return self.session_kv_tokens or self.window_tokens

    @property
    def shares(self) -> bool:
        """Whether two units may show the same block."""
        return False

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return no shared text."""
        del seed
        return shared_texts(np.zeros(0, np.int64), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` sessions, each turn held to the limit."""
        rows = Turns.of(self.turns.draw(draws.stream("turns"), UNITS))
        roots = np.zeros(UNITS, np.int64)
        new_tokens = new_inputs(rows, self.first_input_tokens, self.new_input_tokens, draws)
        whole = dialogue(
            rows,
            0,
            new_tokens,
            self.output_tokens.draw(draws.stream("output_tokens"), len(rows)),
            think_gaps(rows, self.think_time, draws),
            shared.grown(roots - 1, roots),
        )
        return ON_OVERFLOW[self.on_overflow](self, rows, whole)


def _forked(settings: Overflow, whole: Chunk) -> Chains:
    """Return the sessions' texts, then one for each row that has only the kept head in common with it."""
    fork = np.full(len(whole), settings.kept_head_tokens // settings.block_size)
    return whole.chains.grown(whole.chain, fork)


def _slide(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    limit, head = settings.limit_tokens, settings.kept_head_tokens
    over = whole.input_tokens > limit
    kept = np.maximum(limit - (whole.input_tokens - whole.history_tokens), head)
    return replace(
        whole,
        input_tokens=np.minimum(whole.input_tokens, limit),
        history_tokens=np.where(over & (rows.turn > 0), kept, whole.history_tokens),
        chain=np.where(over, len(whole.chains) + np.arange(len(whole)), whole.chain),
        chains=_forked(settings, whole),
    )


def _stop(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    del rows
    return whole.take(np.flatnonzero(whole.input_tokens <= settings.limit_tokens))


def _summarise(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    limit, head = settings.limit_tokens, settings.kept_head_tokens
    new_tokens = whole.input_tokens - whole.history_tokens
    prompt, history, chain = whole.input_tokens.copy(), whole.history_tokens.copy(), whole.chain.copy()
    for turn in range(int(rows.turn.max()) + 1):
        here = np.flatnonzero(rows.turn == turn)
        if turn:
            before = here - 1
            history[here] = prompt[before] + whole.output_tokens[before]
            prompt[here] = history[here] + new_tokens[here]
            chain[here] = chain[before]
        over = here[prompt[here] > limit]
        history[over] = head if turn else 0
        prompt[over] = np.minimum(head + settings.summary_tokens + new_tokens[over], limit)
        chain[over] = len(whole.chains) + over
    return replace(
        whole, input_tokens=prompt, history_tokens=history, chain=chain, chains=_forked(settings, whole)
    )


#: What happens to a prompt over the limit.
ON_OVERFLOW: dict[str, Callable[[Overflow, Turns, Chunk], Chunk]] = {
    "slide": _slide,
    "stop": _stop,
    "summarise": _summarise,
}
