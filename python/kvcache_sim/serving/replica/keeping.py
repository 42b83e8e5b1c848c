"""What of a finished request stays in the cache: asks the admission policy, discards the rest."""

from __future__ import annotations

from kvcache_sim.cache.admission.policy import AdmissionPolicy, Finished
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.serving.sequence import SequenceState


class Keeping:
    """The admission to one machine's cache; asked once a request, after its release."""

    def __init__(self, policy: AdmissionPolicy, store: BlockStore, block_size_tokens: int) -> None:
        self._policy = policy
        self._store = store
        self._block = block_size_tokens

    def finished(self, s: SequenceState, depth: int) -> None:
        """Discard what the policy does not keep of the ``depth`` blocks that a request held."""
        finished = Finished(
            request=s.request,
            turn=s.turn,
            in_session=s.session >= 0,
            prompt_tokens=s.prompt_num_tokens,
            output_tokens=s.output_tokens,
            cached_tokens=s.cached_prefix_length_used,
            block_size_tokens=self._block,
            blocks=depth,
        )
        self._store.discard(s.request, self._policy.kept_blocks(finished), depth)
