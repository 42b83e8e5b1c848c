"""Copies of a token's KV on the ranks of a machine, and in each of its tiers.

Each rank of tensor parallelism has at least one KV head, or MLA's whole latent: with fewer heads than ranks,
and with a latent, several ranks have the same bytes. A tier stores and a channel moves the bytes of each
rank; some tiers of engines store a latent once (``model/data/lower_tiers``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvcache_sim.base.values import Value
from kvcache_sim.cache.settings import BlockForm
from kvcache_sim.model.catalog import entry_names, read_entry
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import Subject, parse_release
from kvcache_sim.scenario.quantities import Capacity, render_size

_TIERS = "lower_tiers"
#: Links between GPU and host by their least rate in one direction, fastest first.
_HOST_LINKS = (("c2c", 200_000_000_000), ("pcie5", 50_000_000_000), ("pcie4", 0))
_LATENTS = ("latent", "latent-sparse", "compressed")


class KvCopies(Value):
    """Copies of a token's KV: on all GPUs of a machine, and in tiers that store them once."""

    ranks: int = 1
    on_gpus: Fraction = Fraction(1)
    #: Tiers with one copy.
    once: tuple[str, ...] = ()
    #: The rules of an engine's lower tiers, a file of ``model/data/lower_tiers``.
    rules: Mapping[str, Any] = {}

    def of_tier(self, tier: str) -> Fraction:
        """Return the copies in a tier."""
        return Fraction(1) if tier in self.once else self.on_gpus

    def bytes_on_gpus(self, distinct_bytes: int) -> int:
        """Return the bytes of a token on all GPUs; ``distinct_bytes``: of one copy."""
        return math.ceil(distinct_bytes * self.on_gpus)

    def form(self, tier: str, form: BlockForm) -> BlockForm:
        """Return the form of a tier's blocks, relative to the bytes of all GPUs."""
        share = self.of_tier(tier) / self.on_gpus
        return form if share == 1 else replace(form, kv_ratio=Fraction(str(form.kv_ratio)) * share)


def kv_copies(spec: ModelSpec, ranks: int, cp: int, semantics: str | None, release: str) -> KvCopies:
    """Return the copies of a model's KV over tensor-parallel ``ranks``.

    Args:
        spec: The model.
        ranks: Degree of tensor parallelism.
        cp: Ranks that split the tokens of a block among themselves.
        semantics: Rules of the tiers below the GPU (``tiers.cpu.semantics``).
        release: The engine's release, such as ``vllm@0.33.0``; "" is the newest.
    """
    one, each = spec.kv_bytes_per_token, spec.kv_bytes_per_token_per_gpu(ranks)
    on_gpus = Fraction(ranks * each, cp * one) if one and ranks > 1 else Fraction(1)
    rules = connector_rules(semantics)
    kinds = {attention.kind for _, attention in spec.attention_layers() if attention.kind != "linear"}
    is_once = cp == 1 and kinds.issubset(_LATENTS) and _stores_once(rules.get("by_release", ""), release)
    return KvCopies(ranks, on_gpus, tuple(rules.get("stores_latent_once", ())) if is_once else (), rules)


def connector_rules(semantics: str | None) -> Mapping[str, Any]:
    """Return the rules of an engine's lower tiers, a file of ``model/data/lower_tiers``; {} without one."""
    return read_entry(_TIERS, "lower tier", semantics) if semantics in entry_names(_TIERS) else {}


def connector_channels(semantics: str | None, gpu: str | None, release: str = "") -> Mapping[str, str]:
    """Return the presets of an engine's lower tiers by default channel, on the GPU's link to its host.

    ``release`` is the engine's; "" is the newest. A link faster than any that the engine was measured on has
    the rates of the next one; without a GPU it is PCIe 5.
    """
    by_link = _channels(connector_rules(semantics), release)
    if gpu is None:
        return by_link.get("pcie5", {})
    rate = load_gpu(gpu).pcie_bytes_per_s
    return next((by_link[link] for link, least in _HOST_LINKS if rate >= least and link in by_link), {})


def _channels(rules: Mapping[str, Any], release: str) -> Mapping[str, Mapping[str, str]]:
    """Return the presets by link: those of releases before a change, else the newest."""
    engine = release.partition("@")[0]
    for until, older in rules.get("channels_before", {}).items():
        if (
            until.partition("@")[0] == engine
            and parse_release(release).version < parse_release(until).version
        ):
            return older  # type: ignore[no-any-return]
    return rules.get("channels", {})  # type: ignore[no-any-return]


def _stores_once(setting: str, release: str) -> bool:
    """Return True unless ``ENGINE/SETTING`` is ``no`` in this engine's release, or not there yet."""
    engine, _, name = setting.partition("/")
    if not engine or release.partition("@")[0] != engine:
        return True
    found = parse_release(release)
    row = found.table.setting(name).row(found.version, Subject())
    return row is not None and row.given != "no"


def size_notes(
    capacities: Mapping[str, Capacity], tokens: Mapping[str, int | None], copies: KvCopies
) -> Iterator[str]:
    """Yield, where ranks have copies, whose bytes the size of each tier counts, and its tokens."""
    for tier, capacity in capacities.items():
        size, held, each = capacity.size_bytes, tokens[tier], copies.of_tier(tier)
        if copies.on_gpus == 1 or size is None or held is None:
            continue
        ranks, rule = copies.ranks, copies.rules.get("capacity", {}).get(tier)
        written = f"{capacity} for all {ranks} ranks"
        if rule and copies.rules["per_rank"] and tier in copies.once:
            written = f"{capacity} of the first rank"
        elif rule and copies.rules["per_rank"]:
            written = f"{render_size(size // ranks)} a rank × {ranks} ranks"
        unit = f" ({rule})" if rule else ""
        copied = f"{float(each):.3g} {'copy' if each == 1 else 'copies'} of each token"
        yield f"tiers.{tier}: {written}{unit}; {copied}: {held:,} tokens"
