"""The section ``retention`` of a scenario."""

from typing import Annotated

from kvcache_sim.scenario.quantities import Finite
from kvcache_sim.scenario.section import Section, about


class RetentionSection(Section):
    """What rows of the trace say of the blocks that their requests leave."""

    field: Annotated[str, about("member of the rows: close, demote, or seconds to live")] = "retention"
    tool: Annotated[str, about("member of the rows: the tool that a request ends with")] = "tool"
    ttl_s: Annotated[
        dict[str, Finite], about("seconds to live by tool, such as {search: 30, bash: 2.5}")
    ] = {}
