"""Kinds of feed-forward layers: dense, or a mixture of experts."""

from __future__ import annotations

from typing import ClassVar

from kvcache_sim.values import Value


class DenseFeedForward(Value):
    """``matrices`` of hidden × intermediate size: three with a gate, two without."""

    intermediate_size: int
    matrices: int = 3

    kind: ClassVar[str] = "dense"
    experts: ClassVar[int] = 0
    experts_active: ClassVar[int] = 0

    def expert_params(self, hidden_size: int) -> int:
        """Return 0: there are no experts."""
        del hidden_size
        return 0

    @property
    def widest_size(self) -> int:
        """The widest activation of a token."""
        return self.intermediate_size

    def shared_params(self, hidden_size: int) -> int:
        """Return the weights that every token uses."""
        return self.matrices * hidden_size * self.intermediate_size


class MoeFeedForward(Value):
    """A mixture: every token takes ``experts_active`` of ``experts``, and what is shared.

    ``shared_intermediate_size`` are the shared experts together, ``dense_intermediate_size`` an ordinary
    feed-forward beside the mixture; ``latent_size`` > 0: the experts work on a projection of that width.
    """

    experts: int
    experts_active: int
    expert_intermediate_size: int
    shared_intermediate_size: int = 0
    dense_intermediate_size: int = 0
    latent_size: int = 0
    matrices: int = 3

    kind: ClassVar[str] = "moe"

    def expert_params(self, hidden_size: int) -> int:
        """Return the weights of one expert."""
        return self.matrices * (self.latent_size or hidden_size) * self.expert_intermediate_size

    @property
    def widest_size(self) -> int:
        """The widest activation of a token outside of its experts."""
        return max(self.shared_intermediate_size, self.dense_intermediate_size)

    def shared_params(self, hidden_size: int) -> int:
        """Return the weights that every token uses: router, shared experts, projections of the latent."""
        always = self.shared_intermediate_size + self.dense_intermediate_size
        return hidden_size * (self.matrices * always + self.experts + 2 * self.latent_size)


FeedForward = DenseFeedForward | MoeFeedForward
