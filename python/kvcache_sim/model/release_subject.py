"""The machine and model that a release's values depend on, from a GPU, a TP degree and a model."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import Release, ReleaseSetting, Row, Subject

#: Kind of attention → its traits in the tables.
_TRAITS = {"latent-sparse": ("latent", "sparse"), "linear": ("states",)} | {
    kind: (kind,) for kind in ("latent", "compressed")
}
#: Part of a machine → a row's conditions on it, as a row without them has them.
_CONDITIONS: dict[str, dict[str, Any]] = {
    "gpu": {"gpu": (), "least_bytes": 0},
    "tensor_parallel": {"least_tensor_parallel": 1},
    "model": {"model": (), "having": frozenset(), "lacking": frozenset()},
}


class Machine(Value):
    """A GPU, its TP degree and its model, without pipeline stages or draft models; None (0): left open."""

    gpu: GpuSpec | None = None
    tensor_parallel: int = 0
    model: ModelSpec | None = None

    def __str__(self) -> str:
        """Return the parts that are not open."""
        tp = f"TP {self.tensor_parallel}" if self.tensor_parallel else ""
        named = [self.gpu.name if self.gpu else "", tp, self.model.name if self.model else ""]
        return ", ".join(filter(None, named))

    def subject(self, release: Release) -> Subject:
        """Return the subject of a release's rows; the release's model runner is one of its traits."""
        found = Subject(tensor_parallel=max(1, self.tensor_parallel))
        if self.gpu:
            nvlink = frozenset({"nvlink"} if self.gpu.nvlink_bytes_per_s else ())
            found = replace(found, gpu=self.gpu.name, memory_bytes=self.gpu.usable_bytes, traits=nvlink)
        if self.model:
            found = replace(found, model=self.model.name, traits=found.traits | _traits(self.model))
            if release.table.has("model_runner"):
                found = replace(found, traits=found.traits | {release.value("model_runner", found)})
        return found

    def rows(self, setting: ReleaseSetting, release: Release) -> tuple[Row, ...]:
        """Return the rows that may count in a release, without the conditions that this machine meets.

        There is at most one if nothing is open; several if conditions on open parts remain.
        """
        is_met: dict[str, Any] = {}
        is_open: dict[str, Any] = {}
        for part, conditions in _CONDITIONS.items():
            (is_met if getattr(self, part) else is_open).update(conditions)
        subject, found = self.subject(release), list[Row]()
        for row in sorted(setting.rows, key=lambda row: row.release):
            if row.release <= release.version and replace(row, **is_open).fits(subject):
                left = replace(row, **is_met)
                found = [*(older for older in found if not left.covers(older)), left]
        return tuple(found)


def _traits(model: ModelSpec) -> frozenset[str]:
    kinds = [trait for _, attention in model.attention_layers() for trait in _TRAITS.get(attention.kind, ())]
    formats = {getattr(model.weights, part) for part in model.weights.__struct_fields__}
    held = {
        "dense": all(
            group.feed_forward is None or group.feed_forward.kind != "moe" for group in model.groups
        ),
        "unquantized": formats <= {"bf16", "fp16", "fp32"},
        "fp8-kv": model.kv_dtype.startswith("fp8"),
    }
    return frozenset([*kinds, *(trait for trait, holds in held.items() if holds)])


def release_subject(model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, release: Release) -> Subject:
    """Return the subject of a release's rows for a model on so many of a GPU."""
    return Machine(gpu, tensor_parallel, model).subject(release)
