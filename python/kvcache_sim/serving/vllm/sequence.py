"""One request between its arrival and its last token, as vLLM's scheduler counts it."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.serving.sequence import SequenceState


@dataclass(slots=True, eq=False)
class VllmSequence:
    """A request's counts, in tokens unless they say blocks; its times and its row are the state's."""

    state: SequenceState
    #: Prompt and generated tokens.
    known: int
    #: Tokens when it is done: prompt and answer.
    total: int
    #: Tokens that have KV, or will have it when the steps in flight have ended.
    computed: int = 0
    #: Tokens that steps in flight will bring (asynchronous scheduling).
    placeholders: int = 0
    #: Tokens that steps in flight compute; of these, those of steps from before a preemption.
    in_flight: int = 0
    stale: int = 0
    #: Blocks held; of these, leading ones, those that have been through the key step.
    blocks: int = 0
    keyed: int = 0
    #: Tokens of the step that is being composed.
    chunk: int = 0
    is_running: bool = False
    was_admitted: bool = False
    is_done: bool = False

    @classmethod
    def of(cls, state: SequenceState) -> VllmSequence:
        """Return a request that has just arrived; an answer of 0 tokens ends like one of 1."""
        return cls(state, state.prompt_num_tokens, state.prompt_num_tokens + max(state.output_tokens, 1))

    @property
    def expected(self) -> int:
        """Known tokens and those that steps in flight will bring."""
        return self.known + self.placeholders

    def lacking(self, foresees_end: bool) -> int:
        """Return the tokens that it lacks; 0 where its last token is known to be under way."""
        under_way = self.placeholders > 0 and self.computed + 2 - self.placeholders >= self.total
        return 0 if foresees_end and under_way else self.expected - self.computed

    def decodes(self, tokens: int) -> bool:
        """Return whether a chunk is a decode: one token, behind all that is known."""
        generated = self.expected - self.state.prompt_num_tokens
        return generated > 0 and tokens == 1 and self.expected - self.computed == 1
