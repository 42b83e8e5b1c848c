"""Options shared by verbs that replay a trace against one cache: the trace, and its blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.run_options import SYNTHESISE_PREFIXES, TURNS, Turns

if TYPE_CHECKING:
    from kvcache_sim.workload.readers import ReadSettings

TraceFile = Annotated[str, Argument(help="trace file, - for standard input", metavar="TRACE")]
Order = Annotated[Literal["tail", "root"], "which end of a request is released first"]
LastPartial = Annotated[Literal["drop", "keep"], "drop or keep a partial last id as a block"]
#: Blocks that a request fills beyond its prompt.
Outputs = Literal["prompt", "computed", "all"]
OUTPUTS = "a request fills its prompt, n + output - 1, or all tokens"


class TraceKeys(Value):
    """The parts of a trace's block keys."""

    trace_block_size: Annotated[
        int | None, Option(help="tokens an id of the trace, where its format does not say", min=1)
    ] = None
    extra_key: Annotated[
        list[str] | None, "member of rows in every block's key, such as cache_salt; repeatable"
    ] = None
    turns: Annotated[Turns | None, TURNS] = None
    synthesise_prefixes: Annotated[bool, SYNTHESISE_PREFIXES] = False

    def read_settings(self, digest: bool) -> ReadSettings:
        """Return the reader's settings; ``digest``: the file's SHA-256 is computed."""
        from kvcache_sim.workload.readers import ReadSettings
        from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption

        prefixes = PrefixAssumption() if self.synthesise_prefixes else None
        keys = tuple(self.extra_key or [])
        return ReadSettings(
            block_size=self.trace_block_size,
            extra_keys=keys,
            turns=self.turns,
            prefixes=prefixes,
            digest=digest,
        )
