"""``kvsim study``: studies of several settings at once, with their ceilings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.cli.idle_options import refuse_idle
from kvcache_sim.cli.verb import verb_app
from kvcache_sim.errors import UsageError

app = verb_app()

_ROUTERS = ("round-robin", "longest-prefix", "cache-aware")


@app.command()
def study(
    name: Annotated[
        Literal["joint", "workload-aware", "tail-lru", "cache-ttl", "kvflow", "learned", "marconi"],
        typer.Argument(help="eviction × routing × capacity, or a paper's policy beside LRU"),
    ],
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="trace file; a paper's: or workloads of five seeds")
    ] = None,
    machines: Annotated[
        int | None, typer.Option(help="machines of each fleet; default 4", min=2, max=1024)
    ] = None,
    capacity: Annotated[
        list[int] | None, typer.Option("--capacity", min=1, help="blocks of a machine's GPU; repeatable")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="eviction policy; repeatable; default lru and arc")
    ] = None,
    router: Annotated[
        list[str] | None, typer.Option("--router", help="router.policy; repeatable; default three of them")
    ] = None,
    config: Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="scenario")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting of all fleets")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="draw it: .svg, .png, .html")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file that --plot names")] = False,
    output_format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="of the answer on stdout")
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> None:
    """Simulate every combination of eviction policy, router and capacity, beside what none can exceed.

    Or replay a paper's policy beside LRU: the figure that it claims, on a trace's second half.

    \b
    Examples:
      kvsim study joint trace.jsonl --machines 16 --capacity 1000 --capacity 3000
      kvsim study tail-lru trace.jsonl --capacity 10000
      kvsim study joint trace.jsonl --policy lru --policy s3fifo --router cache-aware --plot joint.svg
    """
    from kvcache_sim.output import refuse_existing, write_new
    from kvcache_sim.report.joint_study import joint_picture, joint_text
    from kvcache_sim.report.picture_file import check_file, encoded
    from kvcache_sim.report.plotting import require_plotting
    from kvcache_sim.scenario.load import load_scenario
    from kvcache_sim.scenario.requests import read_requests
    from kvcache_sim.sweeps.joint import VARIED, JointAsk, joint_study

    if name != "joint":
        policies = "three" if name == "marconi" else "two"
        why = f"in study {name}, which replays {policies} policies"
        refuse_idle(why, machines=machines, policy=policy, router=router)
        refuse_idle(why, config=config, set=settings, plot=plot, force=force)
        _paper(name, trace, capacity or [], output_format)
        return
    if trace is None:
        raise UsageError("no trace", where="TRACE", expected="a trace file")
    if plot is not None:
        require_plotting()
        check_file(plot, "--plot")
        refuse_existing(plot, force)
    fixed = settings or []
    for assignment in fixed:
        key = assignment.partition("=")[0].strip()
        if key in VARIED:
            raise UsageError(f"the study sets it, by {VARIED[key]}", where=f"--set {key}")
    read = read_requests(load_scenario(config, fixed, trace))
    ask = JointAsk(
        machines or 4,
        tuple(dict.fromkeys(capacity or (1000, 3000))),
        tuple(dict.fromkeys(policy or ("lru", "arc"))),
        tuple(dict.fromkeys(router or _ROUTERS)),
    )
    found = joint_study(
        read,
        ask,
        lambda assignments: load_scenario(config, [*fixed, *assignments], trace),
        lambda what: None if quiet else typer.echo(what, err=True),
    ).as_json()
    print(json.dumps(found, indent=2) if output_format == "json" else joint_text(found))
    if plot is not None:
        write_new(plot, encoded(joint_picture(found, trace.name), plot.suffix), force)
        typer.echo(f"wrote {plot}", err=True)


def _paper(name: str, trace: Path | None, capacities: list[int], output_format: str) -> None:
    from kvcache_sim.sweeps.marconi_study import marconi_study, marconi_text
    from kvcache_sim.sweeps.paper_study import paper_study, paper_text
    from kvcache_sim.workload.readers import read_trace

    read = None if trace is None else read_trace(trace)
    if name == "marconi":
        found, text = marconi_study(read, capacities), marconi_text
    else:
        found, text = paper_study(name, read, capacities), paper_text
    print(json.dumps(found, indent=2) if output_format == "json" else text(found))
