"""The section ``trace``: requests from a file, and what may be changed of them."""

from kvcache_sim.scenario.quantities import MAX_COUNT, DurationNs
from kvcache_sim.scenario.section import Field, Section
from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.readers.settings import OnBadRow, TimeOrder


class PrefixSection(Section):
    """What requests are taken to share of which only times and lengths are known."""

    turns: float = Field(2.0, gt=1, le=1000, description="mean turns of a session; 2.0: LMSYS-Chat-1M's")
    pause: DurationNs = Field(600 * NS_PER_S, gt=0, description="longest time from a turn to the next")
    seed: int = Field(0, ge=0, lt=1 << 63, description="of who continues whom")


class TraceSection(Section):
    """Requests from a file."""

    path: str = Field(description="trace file, relative to the scenario; plain, .gz or .zst; - is stdin")
    format: str | None = Field(None, description="name of the format; null: found from the first bytes")
    block_size: int | None = Field(
        None, ge=1, le=1 << 20, description="tokens of one id; null: the format's own (Mooncake: 512)"
    )
    on_bad_row: OnBadRow = Field("error", description="refuse the trace, or skip and count")
    time_order: TimeOrder = Field("error", description="when times go back: refuse, sort, or keep")
    bytes_per_token: int | None = Field(
        None, ge=1, le=1 << 20, description="of texts and of lengths in bytes; null: 4, an estimate"
    )
    tokenizer: str | None = Field(None, description="tokenizer.json for texts; null: lengths are estimated")
    extra_keys: list[str] = Field(
        default_factory=list, description="members of rows in every block's key, such as cache_salt or lora"
    )
    synthesise_prefixes: PrefixSection | None = Field(
        None, description="without block ids: what prompts are assumed to share; null: nothing"
    )


class TraceChanges(Section):
    """The ``workload`` section beside a trace: changes to what the file says."""

    output_tokens: int | None = Field(None, ge=1, le=MAX_COUNT, description="overrides every output length")
