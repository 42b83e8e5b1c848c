"""The section ``trace``: requests from a file, and changes to them."""

from typing import Annotated

from msgspec import Meta

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.scenario.quantities import Count, DurationNs, Finite, PositiveNs
from kvcache_sim.scenario.section import Section, about
from kvcache_sim.workload.readers.settings import OnBadRow, ReadSettings, TimeOrder, Turns
from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption
from kvcache_sim.workload.trace import Primers, Warmup


class PrefixSection(Section):
    """Synthetic prefixes for traces that have only times and lengths."""

    turns: Annotated[float, about("mean turns per session; 2.0: as in LMSYS-Chat-1M", gt=1, le=1000)] = 2.0
    pause: Annotated[PositiveNs, about("longest time between two turns")] = 600 * NS_PER_S
    seed: Annotated[int, about("seed of the assignment of turns to sessions", ge=0, le=2**63 - 1)] = 0


class TraceSection(Section):
    """Requests from a file."""

    path: Annotated[str, about("trace file, relative to the scenario; plain, .gz or .zst; - is stdin")]
    format: Annotated[str | None, about("name of the format; null: found from the first bytes")] = None
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)] | None,
        about("tokens per block id; null: the format's own (Mooncake: 512)"),
    ] = None
    on_bad_row: Annotated[OnBadRow, about("refuse the trace, or skip and count")] = "error"
    time_order: Annotated[TimeOrder, about("decreasing times: refuse, sort, or keep")] = "error"
    turns: Annotated[
        Turns | None, about("a session's later rows: new turn alone, or whole prompts; null: ids decide")
    ] = None
    bytes_per_token: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)] | None,
        about("bytes per token for texts and byte lengths; null: 4, an estimate"),
    ] = None
    tokenizer: Annotated[str | None, about("tokenizer.json for texts; null: lengths are estimated")] = None
    extra_keys: Annotated[
        list[str], about("row members that are part of every block key, such as cache_salt or lora")
    ] = []
    synthesise_prefixes: Annotated[
        PrefixSection | None, about("without block ids: assumed prefix sharing; null: none")
    ] = None

    speed: Annotated[float, about("arrivals and think times are divided by it", ge=1e-9, le=1e9)] = 1.0
    sessions: Annotated[
        Count | None, about("sessions with all their sub-agents that are kept, drawn by the seed; null: all")
    ] = None

    def read_settings(self, keep_unknown: bool = False) -> ReadSettings:
        """Return the reader's settings; with ``keep_unknown`` members without a column are kept."""
        assumed = self.synthesise_prefixes
        prefixes = None if assumed is None else PrefixAssumption(assumed.turns, assumed.pause, assumed.seed)
        return ReadSettings(
            block_size=self.block_size,
            on_bad_row=self.on_bad_row,
            format=self.format,
            time_order=self.time_order,
            turns=self.turns,
            bytes_per_token=self.bytes_per_token,
            tokenizer=self.tokenizer,
            keep_unknown=keep_unknown,
            extra_keys=tuple(self.extra_keys),
            prefixes=prefixes,
        )


class TraceChanges(Section):
    """The ``workload`` section of a scenario with a trace: changes to the file's requests."""

    output_tokens: Annotated[Count | None, about("output length of every request")] = None
    concurrency: Annotated[
        Count | None,
        about("sessions at a time, each replaced when it has ended; null: as the trace has them"),
    ] = None
    plays: Annotated[
        Count | None,
        about("sessions played in all, from the first one again after the last; null: each one once"),
    ] = None
    enter: Annotated[
        Annotated[list[Annotated[float, Meta(ge=0, le=1)]], Meta(min_length=2, max_length=2)] | None,
        about("part of its span in which each of the first sessions is entered, such as [0.25, 0.75]"),
    ] = None
    primers: Annotated[
        Primers, about("with enter: requests that warm the caches at recorded distances, at once, or not")
    ] = "spread"
    warmup_requests: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)],
        about("with enter: requests of one token a lane after the primers, one after another"),
    ] = 0
    warmup: Annotated[
        Warmup, about("these requests: the lane's next ones, which are then history, or its primers again")
    ] = "advance"
    idle_cap: Annotated[DurationNs | None, about("longest time without any request; null: any")] = None
    tree_idle_cap: Annotated[
        DurationNs | None, about("longest time without a request of a session and its sub-agents; null: any")
    ] = None


class RetentionSection(Section):
    """Retention hints in the rows of the trace."""

    field: Annotated[str, about("row member with the hint: close, demote, or seconds to live")] = "retention"
    tool: Annotated[str, about("row member with the tool call that ends a request")] = "tool"
    ttl_s: Annotated[
        dict[str, Finite], about("seconds to live by tool, such as {search: 30, bash: 2.5}")
    ] = {}
