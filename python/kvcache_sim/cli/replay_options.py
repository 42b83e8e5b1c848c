"""Options shared by verbs that replay a trace against one cache: the trace, and its blocks."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from kvcache_sim.cli.run_options import SYNTHESISE_PREFIXES

TraceFile = Annotated[str, typer.Argument(help="trace file, - for standard input", metavar="TRACE")]
TraceBlockSize = Annotated[
    int | None, typer.Option(help="tokens an id of the trace, where its format does not say", min=1)
]
ExtraKeys = Annotated[
    list[str] | None,
    typer.Option("--extra-key", help="member of rows in every block's key, such as cache_salt; repeatable"),
]
Order = Annotated[Literal["tail", "root"], typer.Option(help="which end of a request is released first")]
#: Blocks that a request fills beyond its prompt.
_Filled = Literal["prompt", "computed", "all"]
Outputs = Annotated[_Filled, typer.Option(help="a request fills its prompt, n + output - 1, or all tokens")]
OutputsOrDefault = Annotated[
    _Filled | None,
    typer.Option(
        help="a request fills its prompt, n + output - 1, or all tokens",
        show_default="prompt; computed with sglang-unified or a model of windows or states",
    ),
]
LastPartial = Annotated[
    Literal["drop", "keep"], typer.Option(help="drop or keep a partial last id as a block")
]
SynthesisePrefixes = Annotated[bool, SYNTHESISE_PREFIXES.for_typer()]
