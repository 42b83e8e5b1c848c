"""``kvsim serve``: an OpenAI-compatible server whose answers come when the simulated cluster has them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvcache_sim.base.errors import EXIT_OK, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.run_options import NumberedRun, RunOutput, ScenarioFile, refuse_empty, refuse_idle
from kvcache_sim.cli.verb import verb_app
from kvcache_sim.metrics.summary_text import summary_text
from kvcache_sim.report.plotting import next_step
from kvcache_sim.scenario.resolved import config_hash
from kvcache_sim.scenario.subject import subject_line

if TYPE_CHECKING:
    from kvcache_sim.extras.live.events.announcer import EventSettings

app = verb_app()

_MIB = 1 << 20


class Listening(Value):
    """Addresses, and the pace of the simulated cluster."""

    host: Annotated[str, "address to listen on; others than loopback are your choice"] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="0: one that is free, which is printed")] = 8000
    port_per_machine: Annotated[bool, "each machine on a port, from --port on"] = False
    speed: Annotated[
        float, Option(min=0.001, max=100_000, help="simulated seconds in one of the wall clock")
    ] = 1.0


class Answers(Value):
    """The answers to clients."""

    tokenizer: Annotated[
        Path | None, Option(metavar="DIR", help="tokenizer.json or its directory; bytes without")
    ] = None
    served_model_name: Annotated[
        list[str] | None, Option(metavar="NAME", help="name of the model; may be repeated")
    ] = None
    api_key: Annotated[str | None, Option(metavar="KEY", help="ask for it; any is accepted without")] = None
    cached_usage: Annotated[
        bool, Option("--cached-usage/--no-cached-usage", help="usage shows cached tokens")
    ] = True


class KvEvents(Value):
    """KV events to publish."""

    kv_events: Annotated[
        str, Option(metavar="ENDPOINT", help="publish KV events, such as at tcp://127.0.0.1:5557")
    ] = ""
    kv_events_replay: Annotated[str, Option(metavar="ENDPOINT", help="replay socket of the KV events")] = ""
    kv_events_topic: Annotated[str, Option(metavar="TOPIC", help="topic of the KV events")] = ""
    kv_events_layout: Annotated[
        Literal["map", "array"], "vLLM 0.33's maps, or the arrays of releases before"
    ] = "map"
    kv_events_hash: Annotated[
        Literal["sha256", "sha256_cbor"], "--prefix-caching-hash-algo of the engine"
    ] = "sha256"
    kv_events_bytes: Annotated[bool, "whole hashes, not their last 64 bits"] = False

    def settings(self) -> EventSettings | None:
        """Return the settings of the events, None without an endpoint; raises UsageError."""
        if not self.kv_events:
            default = KvEvents()
            given = {name: getattr(self, name) != getattr(default, name) for name in self.__struct_fields__}
            refuse_idle("without --kv-events", **given)
            return None
        needed("--kv-events", "zmq")
        from kvcache_sim.extras.live.events.announcer import EventSettings
        from kvcache_sim.extras.live.events.publisher import Endpoint

        endpoint = Endpoint(self.kv_events, self.kv_events_replay, self.kv_events_topic)
        return EventSettings(endpoint, self.kv_events_hash, self.kv_events_layout, self.kv_events_bytes)


class Limits(Value):
    """Limits of requests, and what else the server keeps and says."""

    max_body: Annotated[int, Option(metavar="MIB", min=1, help="longest body of a request")] = 32
    max_requests: Annotated[int, Option(min=1, help="most requests at a time")] = 4096
    keep_text: Annotated[
        Path | None, Option(metavar="FILE", help="also write what was said, for kvsim trace import")
    ] = None
    shutdown_route: Annotated[bool, "end on POST /shutdown as on SIGTERM"] = False
    quiet: Annotated[bool, Option("--quiet", "-q", help="say nothing on stderr")] = False

    def say(self, line: str) -> None:
        """Print a line on stderr, unless quiet."""
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)


@app.command()
def serve(
    context: typer.Context,
    scenario_file: ScenarioFile,
    output: RunOutput,
    listening: Listening,
    answers: Answers,
    kv_events: KvEvents,
    limits: Limits,
) -> int:
    """Answer OpenAI's clients from the simulated cluster until a signal to end, then write a run directory.

    \b
    Examples:
      kvsim serve -c preset:one-gpu --port 8000
      kvsim serve -c preset:cpu-offload --speed 10 --tokenizer ./llama -o out
      kvsim serve -c preset:two-machines --port 8000 --port-per-machine
    """
    needed("kvsim serve", "starlette", "uvicorn", "msgspec", "prometheus_client")
    from kvcache_sim.extras.live.record.texts import Texts
    from kvcache_sim.extras.live.run_output import Asked, live_scenario
    from kvcache_sim.extras.live.serving import Serving, serve_fleet

    asked = Asked(scenario_file.path, scenario_file.settings or [], context.obj)

    def numbered() -> NumberedRun:
        scenario = live_scenario(asked)
        return NumberedRun(scenario.model.name, config_hash(scenario.resolved, ""))

    location = output.opened(numbered)
    refuse_empty(host=listening.host, api_key=answers.api_key)
    serving = Serving(
        **asdict(listening),
        tokenizer=answers.tokenizer,
        model_names=tuple(answers.served_model_name or ()),
        api_key=answers.api_key or "",
        reports_cached=answers.cached_usage,
        body_bytes=limits.max_body * _MIB,
        requests=limits.max_requests,
        shutdown_route=limits.shutdown_route,
        events=kv_events.settings(),
        texts=None if limits.keep_text is None else Texts(limits.keep_text, output.force),
    )
    with location as directory:
        scenario = live_scenario(asked, directory.target)
        summary = serve_fleet(scenario, directory, serving, context.obj, limits.say)
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
