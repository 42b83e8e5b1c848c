"""What a prefix of a hybrid model costs to compute and to keep: FLOPs, bytes of KV, bytes of a state.

Source: Marconi, arXiv 2411.19379, its formulas by layer; a model of 7 B with 4 attention, 24 Mamba and
28 MLP layers of width 4,096 and 128 state dimensions in 16 bits. A layer's state is taken as d·n numbers and
a convolution's 4 · 2d: so 10,000 tokens with a state every 16 keep 17.4 GB, as the paper says.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HybridCost:
    """Layers of each kind, their width and the state's dimensions; the default is the paper's model."""

    attention_layers: int = 4
    state_layers: int = 24
    mlp_layers: int = 28
    width: int = 4096
    state_dimensions: int = 128
    number_bytes: int = 2

    @property
    def token_bytes(self) -> int:
        """KV of a token, keys and values of all attention layers."""
        return self.attention_layers * 2 * self.width * self.number_bytes

    @property
    def state_bytes(self) -> int:
        """States of all state layers after any number of tokens."""
        numbers = self.width * self.state_dimensions + 4 * 2 * self.width
        return self.state_layers * numbers * self.number_bytes

    def flops(self, tokens: int) -> int:
        """Return the work of a prompt's prefill."""
        width = self.width
        attention = 8 * tokens * width**2 + 4 * tokens**2 * width
        state = 12 * tokens * width**2 + 16 * tokens * width * self.state_dimensions + 10 * tokens * width
        mlp = 16 * tokens * width**2
        return self.attention_layers * attention + self.state_layers * state + self.mlp_layers * mlp

    def efficiency(self, parent_tokens: int, tokens: int) -> float:
        """Return the FLOPs that a state saves beyond its parent's, by byte of it and its prefix's KV."""
        saved = self.flops(tokens) - self.flops(parent_tokens)
        return saved / (self.state_bytes + tokens * self.token_bytes)
