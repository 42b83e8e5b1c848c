"""Pipeline stages of a step: the layers of each, the head on the last one, transfers from one to the next."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import exchange_ms, load_links
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.roofline import head_ms
from kvcache_sim.model.step_time import StepTime, StepTimeTable
from kvcache_sim.model.step_times import measured_on

_NS_PER_MS = 1e6
#: Tensors that a stage sends: hidden states and residual, each of two bytes a value.
_SENT_BYTES_PER_VALUE = 2 * 2


def layers_by_stage(layers: int, stages: int) -> tuple[int, ...]:
    """Return vLLM's partition: equal parts, what is left over to the last stages but one and before it.

    Source: ``get_pp_indices`` of ``vllm/distributed/utils.py``.
    """
    each, left = divmod(layers, stages)
    return tuple(each + (stages - 1 - left <= stage < stages - 1) for stage in range(stages))


class WithStages(Value, StepTime):
    """A model whose steps go through pipeline stages of these layers.

    ``head_ms`` and ``hop_ms`` are by tokens: the output head, which the last stage has, and the transfer
    from a stage to the next.
    """

    base: StepTime
    layers: tuple[int, ...]
    model: ModelSpec
    gpu: str
    tensor_parallel: int
    links: str | None = None

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        tokens = np.arange(max(max_tokens, max_sequences) + 1, dtype=np.float64)
        head, hop = (_ns(ms) for ms in (self.head_ms(tokens), self.hop_ms(tokens)))
        return replace(table, stage_layers=self.layers, stage_head_ns=head, stage_hop_ns=hop)

    def head_ms(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ms of the output head, as rooflines have it."""
        return head_ms(self.model, load_gpu(self.gpu), self.tensor_parallel, tokens)

    def hop_ms(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ms in which a stage's GPUs, each a part, send the hidden states and gather them.

        An all-gather and a reduce-scatter between two GPUs send a buffer's two halves one after the other,
        as the two tensors are sent.
        """
        gpu, links = load_gpu(self.gpu), None
        if name := self.links or gpu.links:
            links = load_links(name)
        sizes = tokens * self.model.hidden_size * _SENT_BYTES_PER_VALUE
        sent = exchange_ms(links, gpu.link_bytes_per_s, 2, sizes / self.tensor_parallel)
        if self.tensor_parallel == 1:
            return sent
        return sent + exchange_ms(links, gpu.link_bytes_per_s, self.tensor_parallel, sizes) / 2


def _ns(ms: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(np.where(np.arange(len(ms)) > 0, ms, 0.0) * _NS_PER_MS).astype(np.int64)


def with_stages(base: StepTime, name: str, model: ModelSpec, stages: int, links: str | None) -> StepTime:
    """Return a source of step times over pipeline stages; unchanged if there is one, or no GPU is known."""
    measured = measured_on(name)
    if stages == 1 or measured.gpu is None:
        return base
    try:
        load_gpu(measured.gpu)
    except UsageError:
        return base  # a system that only the library knows
    layers = layers_by_stage(model.layers, stages)
    return WithStages(base, layers, model, measured.gpu, measured.tensor_parallel, links)
