"""The section ``tiers``: the tiers of a machine."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta

from kvcache_sim.cache.block_form import BlockForm
from kvcache_sim.cache.settings import LowerEngine
from kvcache_sim.scenario.quantities import Capacity, CapacityField, Count, RateBytesPerS
from kvcache_sim.scenario.section import Section, about, extended
from kvcache_sim.tiers import COMPUTE, LOAD_EDGES, STAGING, TIERS


class TierSection(Section, kw_only=True):
    """One tier of a machine."""

    capacity: Annotated[
        CapacityField, about(f"blocks, a size, or unbounded; for the {TIERS[COMPUTE]} also auto")
    ]
    policy: Annotated[str | None, about("eviction policy of this tier; null: cache.policy")] = None
    semantics: Annotated[
        LowerEngine | None,
        about(f"of the {TIERS[STAGING]}: an engine's own rules; null: our tree's (groups: its groups')"),
    ] = None
    chunk_tokens: Annotated[
        Count | None,
        about(
            f"of the {TIERS[STAGING]} with LMCache or vllm-offload: tokens of a chunk; null: cache.block_size"
        ),
    ] = None
    kv_ratio: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        about("bytes of a block below the GPU / on it (fp8, compressed); null: as the tier above"),
    ] = None
    encode: Annotated[RateBytesPerS | None, about("bytes written to this tier, encoded per second")] = None
    decode: Annotated[RateBytesPerS | None, about("bytes read from this tier, decoded per second")] = None

    def form(self, above: BlockForm) -> BlockForm:
        """Return the form of this tier's blocks; ``above``: of the tier above."""
        ratio = above.kv_ratio if self.kv_ratio is None else self.kv_ratio
        return BlockForm(ratio, self.encode, self.decode)


class _Tiers(Section, dict=True):
    """The tiers of a machine, fast to slow; a tier that is left out (or null) does not exist."""

    @cached_property
    def present(self) -> dict[str, TierSection]:
        """The existing tiers by name, from fast to slow."""
        return {name: own for name in TIERS if (own := getattr(self, name)) is not None}

    @cached_property
    def compute(self) -> TierSection:
        """The tier that computes."""
        own: TierSection = getattr(self, TIERS[COMPUTE])
        return own

    @cached_property
    def lower(self) -> dict[str, TierSection]:
        """The tiers below the GPU by name, from fast to slow."""
        return {name: own for name, own in self.present.items() if name != TIERS[COMPUTE]}


if TYPE_CHECKING:
    TiersSection = _Tiers

    UpperTier: TypeAlias = str
    LoadEdge: TypeAlias = str
else:
    _OTHERS = {name: (TierSection | None, None) for name in TIERS[COMPUTE + 1 :]}
    _OWN = (TierSection, TierSection(capacity=Capacity(auto=True)))
    TiersSection = extended(_Tiers, "TiersSection", {TIERS[COMPUTE]: _OWN, **_OTHERS})
    UpperTier = Literal[TIERS[:-1]]
    LoadEdge = Literal[LOAD_EDGES]
