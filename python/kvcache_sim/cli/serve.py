"""``kvsim serve``: an OpenAI-compatible server whose answers come when the simulated cluster has them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.base.errors import EXIT_OK, UsageError
from kvcache_sim.cli import run_options
from kvcache_sim.cli.declared import for_typer
from kvcache_sim.cli.run_options import refuse_idle
from kvcache_sim.cli.verb import verb_app
from kvcache_sim.metrics.run_directory import open_numbered_directory, open_run_directory
from kvcache_sim.metrics.summary_text import summary_text
from kvcache_sim.report.plotting import next_step
from kvcache_sim.scenario.resolved import config_hash
from kvcache_sim.scenario.subject import subject_line

app = verb_app()

_MIB = 1 << 20


@app.command()
@for_typer
def serve(
    context: typer.Context,
    config: run_options.Config = "",
    settings: run_options.Settings = None,
    output: run_options.Output = "",
    force: run_options.Force = False,
    host: Annotated[str, typer.Option(help="address to listen on; others than loopback are your choice")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free, which is printed")] = 8000,
    port_per_machine: Annotated[
        bool, typer.Option("--port-per-machine", help="each machine on a port, from --port on")
    ] = False,
    speed: Annotated[
        float, typer.Option(min=0.001, max=100_000, help="simulated seconds in one of the wall clock")
    ] = 1.0,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="tokenizer.json or its directory; bytes without")
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="name of the model; may be repeated")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="ask for it; any is accepted without")
    ] = None,
    cached_usage: Annotated[
        bool, typer.Option("--cached-usage/--no-cached-usage", help="usage shows cached tokens")
    ] = True,
    kv_events: Annotated[
        str, typer.Option(metavar="ENDPOINT", help="publish KV events, such as at tcp://127.0.0.1:5557")
    ] = "",
    kv_events_replay: Annotated[
        str, typer.Option(metavar="ENDPOINT", help="replay socket of the KV events")
    ] = "",
    kv_events_topic: Annotated[str, typer.Option(metavar="TOPIC", help="topic of the KV events")] = "",
    kv_events_layout: Annotated[
        Literal["map", "array"], typer.Option(help="vLLM 0.33's maps, or the arrays of releases before")
    ] = "map",
    kv_events_hash: Annotated[
        Literal["sha256", "sha256_cbor"], typer.Option(help="--prefix-caching-hash-algo of the engine")
    ] = "sha256",
    kv_events_bytes: Annotated[
        bool, typer.Option("--kv-events-bytes", help="whole hashes, not their last 64 bits")
    ] = False,
    max_body: Annotated[int, typer.Option(metavar="MIB", min=1, help="longest body of a request")] = 32,
    max_requests: Annotated[int, typer.Option(min=1, help="most requests at a time")] = 4096,
    keep_text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write what was said, for kvsim trace import")
    ] = None,
    shutdown_route: Annotated[
        bool, typer.Option("--shutdown-route", help="end on POST /shutdown as on SIGTERM")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="say nothing on stderr")] = False,
) -> int:
    """Answer OpenAI's clients from the simulated cluster until SIGINT or SIGTERM, then write a run directory.

    \b
    Examples:
      kvsim serve -c preset:one-gpu --port 8000
      kvsim serve -c preset:cpu-offload --speed 10 --tokenizer ./llama -o out
      kvsim serve -c preset:two-machines --port 8000 --port-per-machine
    """
    needed("kvsim serve", "starlette", "uvicorn", "msgspec", "prometheus_client")
    from kvcache_sim.extras.live.run_output import Asked, live_scenario
    from kvcache_sim.extras.live.serving import Serving, serve_fleet

    asked = Asked(Path(config) if config else None, settings or [], context.obj)
    location = (
        open_run_directory(Path(output), force)
        if output
        else open_numbered_directory(
            Path("runs"), (scenario := live_scenario(asked)).model.name, config_hash(scenario.resolved, "")
        )
    )
    for option, text in (("--host", host), ("--api-key", api_key)):
        if text is not None and not text.strip():
            raise UsageError("is empty", where=option, hint="leave it out for its default")
    events = None
    if not kv_events:
        refuse_idle(
            "without --kv-events",
            kv_events_replay=kv_events_replay,
            kv_events_topic=kv_events_topic,
            kv_events_layout=kv_events_layout != "map",
            kv_events_hash=kv_events_hash != "sha256",
            kv_events_bytes=kv_events_bytes,
        )
    else:
        needed("--kv-events", "zmq")
        from kvcache_sim.extras.live.events.announcer import EventSettings
        from kvcache_sim.extras.live.events.publisher import Endpoint

        endpoint = Endpoint(kv_events, kv_events_replay, kv_events_topic)
        events = EventSettings(endpoint, kv_events_hash, kv_events_layout, kv_events_bytes)
    names = tuple(served_model_name or ())
    texts = None
    if keep_text is not None:
        from kvcache_sim.extras.live.record.texts import Texts

        texts = Texts(keep_text, force)
    serving = Serving(
        texts=texts,
        host=host,
        port=port,
        port_per_machine=port_per_machine,
        speed=speed,
        tokenizer=tokenizer,
        model_names=names,
        api_key=api_key or "",
        reports_cached=cached_usage,
        body_bytes=max_body * _MIB,
        requests=max_requests,
        shutdown_route=shutdown_route,
        events=events,
    )

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    with location as directory:
        scenario = live_scenario(asked, directory.target)
        summary = serve_fleet(scenario, directory, serving, context.obj, say)
    subject = subject_line(scenario.resolved, summary["requests"]["arrived"])
    print(summary_text(summary, f"run        {directory.target}", subject))
    print(next_step(shlex.quote(str(directory.target))))
    return EXIT_OK


def needed(verb: str, *packages: str) -> None:
    """Raise UsageError if packages of the extra ``serve`` are missing."""
    from importlib.util import find_spec

    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        hint = "pip install 'kvcache-sim[serve]'"
        raise UsageError("packages are missing", verb, ", ".join(missing), hint=hint)
