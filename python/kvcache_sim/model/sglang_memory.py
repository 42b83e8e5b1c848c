"""KV capacity as SGLang finds it: free after weights − free before × (1 − fraction); the default fraction.

Free before is measured after the process groups exist. Activations and graphs live in the rest of the
fraction and are not profiled. Sources: ``srt/model_executor``, from 0.5.16 ``srt/mem_cache``;
``srt/server_args.py``, from 0.5.20 ``srt/arg_groups/memory_hook.py``.
"""

from __future__ import annotations

from kvcache_sim.model.capacity_band import band_bytes
from kvcache_sim.model.engine_memory import EngineMemory, KvCapacity, rank_weights_bytes
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Subject

_MIB_PER_GIB = 1024
#: Fractions by tensor-parallel degree, largest first, of releases that know no other rule.
_BY_DEGREE = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
#: Reserves of releases that know no other rule: below so many GiB, GiB in all, GiB a rank.
_CLASSES = ((35, 2.8, 0.1), (90, 9.5, 0.5), (160, 12.0, 0.5), (10_000, 32.0, 0.0))
#: Sizes of prefill graphs in tokens: from, below, step. The last has no end but the chunk.
_PREFILL_SIZES = ((4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64), (1280, 4097, 256))
_LAST_PREFILL_SIZES = (4608, 512)
#: Prefill graphs of latents (MLA) end here.
_MOST_LATENT_TOKENS = 2048


def sglang_capacity(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, engine: EngineMemory, data_parallel: int
) -> KvCapacity:
    """Return what SGLang leaves for KV on a rank; the memory to take is the fraction of what it finds."""
    release, ranks = engine.release, tensor_parallel * engine.pipeline_parallel
    subject = release_subject(model, gpu, tensor_parallel, release)
    gone = release.value("context_bytes", subject)
    if ranks > 1:
        gone += release.value("several_ranks_bytes", subject)
    found = gpu.usable_bytes - gone
    fraction = engine.mem_fraction
    if fraction is None:
        fraction = default_fraction(gpu, subject, engine)
    return KvCapacity(
        engine,
        budget_bytes=int(found * fraction),
        weights_bytes=rank_weights_bytes(model, tensor_parallel, data_parallel, engine.pipeline_parallel),
        found_bytes=found,
        band_bytes=band_bytes(release),
    )


def default_fraction(gpu: GpuSpec, subject: Subject, engine: EngineMemory) -> float:
    """Return ``mem_fraction_static`` where it is not given: what is left of the GPU's MiB after a reserve."""
    rule, total = str(engine.release.value("mem_fraction_static")), gpu.smi_mib
    if rule == "by-degree":
        return (total - 13_312) / total if total > 81_920 else _by_degree(subject.tensor_parallel)
    if rule == "by-degree-capped":
        share = _by_degree(subject.tensor_parallel * engine.pipeline_parallel if total <= 81_920 else 1)
        return (
            share if total <= 98_304 else min(share + 49_152 * (1 - share) / total, (total - 18_432) / total)
        )
    if rule == "by-class":
        return (total - _reserve_by_class(total, subject, engine)) / total
    reserve = _reserve_by_batch(gpu, subject, engine)
    return round((total - reserve) / total, 3)


def _by_degree(degree: int) -> float:
    return next(share for least, share in _BY_DEGREE if degree >= least)


def _reserve_by_class(total_mib: int, subject: Subject, engine: EngineMemory) -> float:
    parallel = subject.tensor_parallel * engine.pipeline_parallel
    base_gib, share = next(found for below, *found in _CLASSES if total_mib < below * _MIB_PER_GIB)
    more = (2 if engine.drafts else 0) + (4 if engine.attention_ranks > 1 else 0)
    return _MIB_PER_GIB * (base_gib + share * parallel + more)


def _reserve_by_batch(gpu: GpuSpec, subject: Subject, engine: EngineMemory) -> float:
    """Return the MiB that are kept: for constants, activations of a chunk, graphs, ranks, a draft."""
    release, ranks = engine.release, engine.attention_ranks
    chunk, graphs = engine.max_num_batched_tokens * ranks, int(release.value("graph_bs", subject))
    reserve = 512 + 1.5 * max(chunk, 2048) + 2 * graphs
    reserve += 128 * subject.tensor_parallel * engine.pipeline_parallel
    if ranks > 1:
        reserve += graphs * ranks * (3 + (1.5 if graphs > 300 else 0))
    if release.value("prefill_graphs", subject):
        is_latent = "latent" in subject.traits
        reserve += 8 * prefill_graphs(_MOST_LATENT_TOKENS if is_latent else chunk) + 1536 * is_latent
    if gpu.smi_mib > 60 * _MIB_PER_GIB:
        reserve = max(reserve, 10 * _MIB_PER_GIB)
    more: float = release.value("draft_reserve_mib", subject) if engine.drafts else 0
    return reserve + more


def prefill_graphs(most_tokens: int) -> int:
    """Return the number of sizes of prefill graphs up to one."""
    first, step = _LAST_PREFILL_SIZES
    sizes = [size for group in _PREFILL_SIZES for size in range(*group) if size <= most_tokens]
    return len(sizes) + len(range(first, most_tokens + 1, step))
