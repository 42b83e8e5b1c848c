"""KV capacity as vLLM finds it at its start: memory to take − weights − activations − non-torch − graphs.

The rule is ``determine_available_memory`` of ``v1/worker/gpu_worker.py``; what its profile run measures is
computed from shapes, and what no shape gives stands by release in ``data/releases/vllm.toml``.
"""

from __future__ import annotations

from bisect import bisect_right
from math import ceil

from kvcache_sim.model.capacity_band import band_bytes, graphs_estimate
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.engine_memory import EngineMemory, Estimate, KvCapacity, rank_weights_bytes
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Subject

#: Bytes per logit and scratch of samplers by name, for one that is not the release's own. Sorting: the logit
#: in two formats, and a sort's keys and indices twice (38.1 to 39.9 in seven logs of vLLM 0.11). Triton: the
#: logit in two formats, and two of its copies. Fused: the logit in two formats.
SAMPLER_BYTES_PER_LOGIT = {"sorting": 38.4, "triton": 14.0, "fused": 6.0}
#: Largest graph, in tokens.
_MOST_GRAPH_TOKENS = 512


def vllm_capacity(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, engine: EngineMemory, data_parallel: int
) -> KvCapacity:
    """Return what vLLM leaves for KV on the rank with the least; it may be negative."""
    release, ranks = engine.release, tensor_parallel * data_parallel * engine.pipeline_parallel
    subject = release_subject(model, gpu, tensor_parallel, release)
    experts = engine.mxfp4_experts or release.value("mxfp4_experts", subject)
    non_torch = int(release.value("non_torch_bytes", subject))
    if ranks > 1:
        several, each = (release.value(name, subject) for name in ("several_ranks_bytes", "rank_bytes"))
        non_torch += several + each * min(ranks, 8)
    tokens = engine.max_num_batched_tokens
    hidden = 2 * tokens * model.hidden_size
    routed, forward = _forward_bytes(model, tensor_parallel, tokens)
    logit_bytes, scratch_bytes = _sampler(engine, subject)
    rows = min(engine.max_num_seqs, tokens)
    sampler = int(logit_bytes * rows * model.vocab_size)
    sampler += scratch_bytes * min(gpu.multiprocessors, rows) * model.vocab_size + hidden
    forward += 2 * hidden
    return KvCapacity(
        engine,
        budget_bytes=ceil(gpu.usable_bytes * engine.utilisation),
        weights_bytes=rank_weights_bytes(
            model,
            tensor_parallel,
            data_parallel,
            engine.pipeline_parallel,
            by_marlin=experts == "marlin",
        ),
        activation_bytes=routed + max(forward, sampler),
        non_torch_bytes=non_torch,
        graphs=_graphs(engine, subject),
        forward_bytes=routed + forward,
        sampler_bytes=routed + sampler,
        logit_bytes=logit_bytes,
        found_bytes=gpu.usable_bytes,
        band_bytes=band_bytes(release),
    )


def _forward_bytes(model: ModelSpec, tensor_parallel: int, tokens: int) -> tuple[int, int]:
    """Return the bytes of routed activations, and of the widest feed-forward, in 16-bit numbers.

    Mixtures keep the routed activations in two permanent buffers; kernels of 4-bit experts have none.
    """
    forward = routed = 0
    for group in model.groups:
        mlp = group.feed_forward
        if mlp is None:
            continue
        forward = max(forward, 6 * tokens * mlp.widest_size // tensor_parallel)
        if mlp.experts and bits_per_value(model.weights.experts) > 4.5:
            routed = max(routed, 4 * tokens * mlp.experts_active * model.hidden_size)
    return routed, forward


def _sampler(engine: EngineMemory, subject: Subject) -> tuple[float, int]:
    """Return the bytes of the sampler's warm-up a logit, and once a multiprocessor and vocabulary entry."""
    release, name = engine.release, engine.sampler
    if name in ("", release.value("sampler", subject)):
        return release.value("sampler_bytes", subject), release.value("sampler_scratch_bytes", subject)
    return SAMPLER_BYTES_PER_LOGIT[name], 4 if name == "triton" else 0


def _graphs(engine: EngineMemory, subject: Subject) -> Estimate:
    """Return the estimate of CUDA graphs that is subtracted: a given one, or that of the modes and sizes."""
    if engine.release.value("graphs", subject) != "estimate":
        return Estimate()
    if engine.graphs_bytes is not None:
        return Estimate(*(engine.graphs_bytes,) * 3)
    most = min(2 * engine.max_num_seqs, _MOST_GRAPH_TOKENS, engine.max_num_batched_tokens)
    return graphs_estimate(graph_sizes(most) + graph_sizes(min(most, engine.max_num_seqs)))


def graph_sizes(most_tokens: int) -> int:
    """Return the number of captured sizes up to one: 1, 2, 4, every 8 below 256, every 16 from there on."""
    return bisect_right([1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16)], most_tokens)
