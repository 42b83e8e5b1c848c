"""The section ``retention`` of a scenario."""

from __future__ import annotations

from kvcache_sim.scenario.section import Field, Section


class RetentionSection(Section):
    """What rows of the trace say of the blocks that their requests leave."""

    field: str = Field("retention", description="member of the rows: close, demote, or seconds to live")
    tool: str = Field("tool", description="member of the rows: the tool that a request ends with")
    ttl_s: dict[str, float] = Field(
        default_factory=dict, description="seconds to live by tool, such as {search: 30, bash: 2.5}"
    )
