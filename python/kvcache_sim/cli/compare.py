"""``kvsim compare``: runs or scenarios against the first of them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.base.errors import EXIT_OK, EXIT_THRESHOLD, UsageError
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def compare(
    sides: Annotated[
        list[Path], Argument(metavar="A B...", help="run directories, scenario files, preset:NAME")
    ],
    fail_if: Annotated[
        list[str] | None, Option(metavar="CONDITION", help="exit 4 if it holds; signed: measured from A")
    ] = None,
    repeats: Annotated[int, Option(min=1, max=1000, help="runs of each scenario file, seeds shared")] = 1,
    smallest: Annotated[
        float, Option(metavar="PERCENT", min=0, max=1000, help="smallest difference of interest")
    ] = 2,
    rank_saturated: Annotated[bool, "rank saturated runs by latency too"] = False,
    check: Annotated[bool, "run both again at another seed: is the same one better?"] = False,
    all_settings: Annotated[bool, Option("--settings", help="all settings that differ, as a table")] = False,
    output_format: Annotated[Literal["table", "json"], Option("--format")] = "table",
) -> int:
    """Compare each other side with A: the better one, numbers with intervals, settings that differ.

    \b
    Examples:
      kvsim compare runs/1-without-cpu runs/2-with-cpu
      kvsim compare back.yaml through.yaml --repeats 5
      kvsim compare preset:one-gpu preset:cpu-offload --check
      kvsim compare runs/1-main runs/2-change --fail-if 'ttft.p99 > +5%' --fail-if 'hit_rate < -1%'
    """
    from kvcache_sim.api.comparing import Comparison
    from kvcache_sim.metrics.thresholds import parse_threshold
    from kvcache_sim.report.compare.sides import open_sides

    if len(sides) < 2:
        raise UsageError(
            "nothing to compare with", got=str(sides[0]), expected="two or more runs or scenarios"
        )
    thresholds = [parse_threshold(condition) for condition in fail_if or []]
    with ExitStack() as stack:
        baseline, *others = open_sides(sides, repeats, stack, output_format == "table")
        comparison = Comparison([baseline, *others], rank_saturated, smallest)
        breached = [
            f"{other[0].label}: {threshold.text}"
            for other in others
            for threshold in thresholds
            if threshold.holds(other[0].summary, baseline[0].summary)
        ]
        checked = comparison.check() if check else []
    if output_format == "json":
        document = {"compared": comparison.figures, "checked": checked} if check else comparison.figures
        print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    elif check:
        from kvcache_sim.report.explain.claims import Checked, claims_text

        print(claims_text([Checked(**one) for one in checked]))
    else:
        print(comparison.text(all_settings))
    for line in breached:
        typer.echo(f"threshold breached: {line}", err=True)
    return EXIT_THRESHOLD if breached else EXIT_OK
