"""A small model of each kind of layer: full attention, a dense feed-forward, a mixture, and neither."""

from kvcache_sim.model.layer_group import DenseFeedForward, MoeFeedForward
from support.product.models import HeadAttention, ModelSpec, grouped


def five_layers(**changes) -> ModelSpec:
    moe = MoeFeedForward(8, 2, 16, shared_intermediate_size=6, latent_size=3)
    layers = [
        (HeadAttention(8, 4, 10), DenseFeedForward(30)),
        *[(HeadAttention(8, 4, 10), moe)] * 3,
        (None, None),
    ]
    return ModelSpec("m", "", 64, 1000, grouped(layers), **changes)
