"""The section ``trace``: requests from a file, and what may be changed of them."""

from typing import Annotated

from msgspec import Meta

from kvcache_sim.scenario.quantities import Count, Finite, PositiveNs
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.settings import OnBadRow, TimeOrder


class PrefixSection(Section):
    """What requests are taken to share of which only times and lengths are known."""

    turns: Annotated[float, about("mean turns of a session; 2.0: LMSYS-Chat-1M's", gt=1, le=1000)] = 2.0
    pause: Annotated[PositiveNs, about("longest time from a turn to the next")] = 600 * NS_PER_S
    seed: Annotated[int, about("of who continues whom", ge=0, le=2**63 - 1)] = 0


class TraceSection(Section):
    """Requests from a file."""

    path: Annotated[str, about("trace file, relative to the scenario; plain, .gz or .zst; - is stdin")]
    format: Annotated[str | None, about("name of the format; null: found from the first bytes")] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)] | None,
        about("tokens of one id; null: the format's own (Mooncake: 512)"),
    ] = None
    on_bad_row: Annotated[OnBadRow, about("refuse the trace, or skip and count")] = "error"
    time_order: Annotated[TimeOrder, about("when times go back: refuse, sort, or keep")] = "error"
    bytes_per_token: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)] | None,
        about("of texts and of lengths in bytes; null: 4, an estimate"),
    ] = None
    tokenizer: Annotated[str | None, about("tokenizer.json for texts; null: lengths are estimated")] = None
    extra_keys: Annotated[
        list[str], about("members of rows in every block's key, such as cache_salt or lora")
    ] = []
    synthesise_prefixes: Annotated[
        PrefixSection | None, about("without block ids: what prompts are assumed to share; null: nothing")
    ] = None


class TraceChanges(Section):
    """The ``workload`` section beside a trace: changes to what the file says."""

    output_tokens: Annotated[Count | None, about("overrides every output length")] = None


class RetentionSection(Section):
    """What rows of the trace say of the blocks that their requests leave."""

    field: Annotated[str, about("member of the rows: close, demote, or seconds to live")] = "retention"
    tool: Annotated[str, about("member of the rows: the tool that a request ends with")] = "tool"
    ttl_s: Annotated[
        dict[str, Finite], about("seconds to live by tool, such as {search: 30, bash: 2.5}")
    ] = {}
