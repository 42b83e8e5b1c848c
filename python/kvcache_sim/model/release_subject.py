"""The subject of look-ups in a table of releases: a model on a GPU."""

from __future__ import annotations

from msgspec.structs import replace

from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import Release, Subject

#: Formats of weights that are no quantisation.
_WHOLE = frozenset({"bf16", "fp16", "fp32"})


def release_subject(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int = 1, release: Release | None = None
) -> Subject:
    """Return the subject of look-ups in a table of releases.

    Traits: ``dense`` (no experts), ``unquantized``, the kinds of layers ``states``, ``latent`` (each token
    one latent), ``sparse`` (an indexer chooses tokens) and ``compressed``, and ``nvlink`` of the GPU. With a
    release also ``V2``, if that is its model runner for the model; settings that depend on it need it.
    """
    attentions = [group.attention for group in model.groups if group.attention is not None]
    formats = {getattr(model.weights, part) for part in model.weights.__struct_fields__}
    held = {
        "dense": not any(group.feed_forward and group.feed_forward.experts for group in model.groups),
        "unquantized": formats <= _WHOLE,
        "states": any(attention.kind == "linear" for attention in attentions),
        "latent": any(attention.kind.startswith("latent") for attention in attentions),
        "sparse": any(attention.chosen_entries for attention in attentions),
        "nvlink": gpu.nvlink_bytes_per_s > 0,
        "compressed": any(attention.kind == "compressed" for attention in attentions),
    }
    traits = frozenset(trait for trait, holds in held.items() if holds)
    subject = Subject(gpu.name, gpu.usable_bytes, tensor_parallel, model.name, traits)
    setting = None if release is None else release.table.settings.get("model_runner")
    runner = setting and release and setting.row(release.version, subject)
    if runner and runner.taken == "V2":
        return replace(subject, traits=traits | {"V2"})
    return subject
