"""One request between its arrival and its last token, as SGLang's scheduler counts it."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.serving.sequence import SequenceState

#: No more is counted of an answer that is still to come (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``).
_MOST_NEW_TOKENS = 4096


@dataclass(slots=True, eq=False)
class SglangSequence:
    """A request's counts, in tokens; its times and its row are the state's."""

    state: SequenceState
    #: Most tokens of its answer: as many as it will have.
    max_new: int
    #: Tokens of its answer that are out.
    out: int = 0
    #: What its last look-up found; it is held once it has KV of its own.
    found: int = 0
    #: SGLang's ``prefix_len``, ``extend_end``, ``full_untruncated_fill_ids`` and ``kv_committed_len``.
    prefix: int = 0
    end: int = 0
    filled: int = 0
    committed: int = 0
    #: Steps in flight that compute a chunk of its prompt which is not the last.
    middle_chunks: int = 0
    #: Tokens of the step that is being composed.
    chunk: int = 0
    steps_in_flight: int = 0
    #: It lost its KV and has not been admitted again.
    is_retracted: bool = False
    is_finished: bool = False
    #: It has KV of its own.
    is_held: bool = False
    was_admitted: bool = False

    @classmethod
    def of(cls, state: SequenceState) -> SglangSequence:
        """Return a request that has just arrived; an answer of 0 tokens ends like one of 1."""
        return cls(state, max(state.output_tokens, 1))

    @property
    def known(self) -> int:
        """Tokens that are known: the prompt and what is out of the answer."""
        return self.state.prompt_num_tokens + self.out

    @property
    def matched(self) -> int:
        """Tokens that are found of it and may be used: the last known one is computed."""
        return min(self.found, self.known - 1)

    @property
    def to_come(self) -> int:
        """Tokens still to come, as far as they are counted."""
        return min(self.max_new - self.out, _MOST_NEW_TOKENS)

    @property
    def whole_answer(self) -> int:
        """Tokens that a request is counted with once its prompt is computed whole."""
        return min(self.max_new, _MOST_NEW_TOKENS)

    @property
    def ends_next(self) -> bool:
        """Whether the next token is its last."""
        return self.out + 1 >= self.max_new
