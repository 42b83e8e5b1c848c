"""``kvsim simulate``: replay a trace or a generated workload, write a run directory, print its summary."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kvcache_sim.base.errors import EXIT_OK, EXIT_THRESHOLD, UsageError
from kvcache_sim.base.units import parse_time_ns
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, CommandLine, Option, Verb
from kvcache_sim.cli.intervals import Wanted, opened_requests, wanted, with_intervals
from kvcache_sim.cli.notices import remark, warn
from kvcache_sim.cli.progress import shown_progress
from kvcache_sim.cli.run_options import SYNTHESISE_PREFIXES, NumberedRun, RunOutput, ScenarioFile, Turns
from kvcache_sim.metrics.certainty import intervals_command
from kvcache_sim.metrics.summary_text import brief_text, summary_text
from kvcache_sim.policies.engine_modes import engine_mode
from kvcache_sim.report.plotting import next_step
from kvcache_sim.scenario.execute import execute, resolved_with_trace, store
from kvcache_sim.scenario.load import Scenario, load_scenario
from kvcache_sim.scenario.resolved import config_hash
from kvcache_sim.scenario.subject import subject_line
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.stream import TraceStream

if TYPE_CHECKING:
    from kvcache_sim.metrics.thresholds import Threshold

TraceArgument = Annotated[str, Argument(metavar="[TRACE]", help="trace file, - for stdin")]


class ShortSettings(Value):
    """Options that stand for a ``--set`` each."""

    seed: Annotated[int | None, "short for --set seed=N"] = None
    policy: Annotated[str, "short for --set cache.policy=NAME"] = ""
    trace_format: Annotated[str, "short for --set trace.format=NAME"] = ""
    on_bad_row: Annotated[Literal["error", "skip"] | None, "short for --set trace.on_bad_row=…"] = None
    turns: Annotated[Turns | None, "short for --set trace.turns=…"] = None
    synthesise_prefixes: Annotated[bool, SYNTHESISE_PREFIXES] = False

    @property
    def overrides(self) -> list[str]:
        """The settings, ``KEY=VALUE``."""
        shorts = {
            "seed": self.seed,
            "cache.policy": self.policy,
            "trace.format": self.trace_format,
            "trace.on_bad_row": self.on_bad_row,
            "trace.turns": self.turns,
            "trace.synthesise_prefixes": "{}" if self.synthesise_prefixes else "",
        }
        return [f"{key}={value}" for key, value in shorts.items() if value not in (None, "")]


class Execute(Value):
    """The engine that runs, and the data that it keeps; no result changes by them."""

    record: Annotated[str, Option(metavar="all[:FROM..TO]", help="keep steps, transfers, evictions too")] = ""
    check: Annotated[Literal["cheap", "full"], "invariants: at the end, or at every step"] = "cheap"
    engine: Annotated[
        Literal["native", "spec", "spec-plain"],
        "the core, or the specification: Python to read, over the core's store or a plain one",
    ] = "native"
    backend: Annotated[str, Option(hidden=True)] = ""
    single_steps: Annotated[bool, Option("--step-every-iteration", hidden=True)] = False
    causes: Annotated[bool, "count missed tokens by cause: summary and requests table"] = False
    prefixes: Annotated[bool, "keep the prefix store's entries for 'kvsim explain --prefixes'"] = False
    schedule_digests: Annotated[bool, "figures and digests of the engine's schedule, step by step"] = False

    def run_options(self, times: bool) -> RunOptions:
        """Return the options of the run; ``times``: each request's are kept."""
        window = parse_record(self.record)
        kept = (self.causes, self.prefixes, self.schedule_digests)
        return RunOptions(self.check, window, *kept, engine=self.engine, times=times)


class Conditions(Value):
    """Conditions on which the command fails."""

    fail_if: Annotated[
        list[str] | None, Option(metavar="CONDITION", help="exit 4 if it holds; may be repeated")
    ] = None
    baseline: Annotated[
        str, Option(metavar="RUN", help="finished run that signed conditions are measured from")
    ] = ""
    idle: Annotated[
        Literal["error", "warn"], "a setting that nothing uses is an error, or left out with a warning"
    ] = "error"


class Printed(Value):
    """The output."""

    sensitivity: Annotated[bool, "intervals of the main figures: two replays (default on a terminal)"] = False
    no_sensitivity: Annotated[bool, "no intervals on a terminal"] = False
    output_format: Annotated[
        Literal["table", "brief", "json"], Option("--format", help="of the summary on stdout")
    ] = "table"
    quiet: Annotated[bool, Option("--quiet", "-q", help="no progress, no warnings")] = False

    def intervals(self, scenario: Scenario) -> Wanted:
        """Return when intervals are computed."""
        for_people = self.output_format != "json" and not self.quiet
        return wanted(scenario, self.sensitivity, self.no_sensitivity, for_people)


def simulate(
    command_line: CommandLine,
    *,
    trace: TraceArgument = "",
    scenario_file: ScenarioFile,
    output: RunOutput,
    shorts: ShortSettings,
    run: Execute,
    conditions: Conditions,
    printed: Printed,
) -> int:
    """Replay a trace or a generated workload and write a run directory.

    \b
    Examples:
      kvsim simulate -c preset:quickstart
      kvsim simulate trace.jsonl --set tiers.gpu.capacity='16384 blocks' -o out
      kvsim simulate trace.jsonl --set tiers.cpu.capacity=512GiB --set write.policy=through
      kvsim simulate trace.jsonl --set replica.instant=true --format json --fail-if 'hit_rate < 30%'
    """
    if run.backend or run.single_steps:
        _refuse_second_engine(run.backend)
    if trace == scenario_file.config == "-":
        raise UsageError("standard input is asked for twice", where="-", hint="give one of the two as a file")
    overrides = [*(scenario_file.settings or []), *shorts.overrides]
    scenario = load_scenario(scenario_file.path, overrides, Path(trace) if trace else None, conditions.idle)
    thresholds = [_own_threshold(text, conditions.baseline) for text in conditions.fail_if or []]
    measured_from = _summary_of(conditions.baseline) if conditions.baseline else None
    choice = printed.intervals(scenario)
    options = run.run_options(times=choice is not Wanted.NEVER)
    requests = opened_requests(scenario, options, choice)
    first = requests.first if isinstance(requests, TraceStream) else requests
    resolved_hash = config_hash(resolved_with_trace(scenario, first), first.sha256)
    location = output.opened(lambda: NumberedRun(scenario.model.name, resolved_hash))
    with location as directory, shown_progress(printed.quiet) as observer:
        began_s = time.process_time()
        execution = execute(scenario, requests, options, observer, directory)
        execution, replays_s = with_intervals(execution, requests, choice, began_s, observer)
        if observer is not None:
            observer.phase("writing tables")
        summary = store(execution, directory, command_line, replays_s=replays_s)
    if not printed.quiet:
        if scenario.gpu_capacity is not None and scenario.gpu_capacity.note:
            remark(scenario.gpu_capacity.note)
        for note in scenario.size_notes:
            remark(note)
        for warning in execution.warnings:
            warn(warning)
    _print(summary, scenario, str(directory.target), printed.output_format)
    breached = [threshold.text for threshold in thresholds if threshold.holds(summary, measured_from)]
    for text in breached:
        print(f"threshold breached: {text}", file=sys.stderr)
    return EXIT_THRESHOLD if breached else EXIT_OK


app = Verb(simulate)


def _print(summary: dict[str, Any], scenario: Scenario, target: str, output_format: str) -> None:
    """Print the summary of a run in directory ``target``, and the commands to run next."""
    has_none = "step_times" in summary and "certainty" not in summary
    source = scenario.model.trace.path if scenario.model.trace is not None else ""
    later = [f"intervals: {intervals_command(source, target)}"] if has_none else []
    following = next_step(shlex.quote(target))
    if output_format == "json":
        print(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False))
        print("\n".join([*later, following]), file=sys.stderr)
        return
    subject = subject_line(scenario.resolved, summary["requests"]["arrived"])
    written = brief_text if output_format == "brief" else summary_text
    print(written(summary, f"run        {target}", subject))
    print("".join(f"{line}\n" for line in later), end="")
    if (mode := engine_mode(scenario.model.cache.semantics)) is not None:
        print(f"equals     {mode.sentence}, in instant runs of whole prompts")
    print(following)


def _summary_of(run: str) -> dict[str, Any]:
    from kvcache_sim.metrics.load_run import load_run

    return load_run(Path(run)).summary


def _refuse_second_engine(backend: str) -> None:
    """Raise UsageError for options of the second engine in Python, which name their successors."""
    where, engine = ("--backend", "spec") if backend else ("--step-every-iteration", "spec-plain")
    hint = "without it the core runs, as before" if backend == "native" else ""
    raise UsageError("removed with the second engine in Python", where, backend, f"--engine {engine}", hint)


def _own_threshold(text: str, baseline: str) -> "Threshold":
    from kvcache_sim.metrics.thresholds import parse_threshold

    threshold = parse_threshold(text)
    if threshold.needs_baseline and not baseline:
        raise UsageError(
            "measured from a baseline run",
            where="--fail-if",
            got=repr(text),
            hint="name one with --baseline RUN",
        )
    return threshold


_EXPECTED = "all, or all:FROM..TO with times, such as all:60s..90s"


def parse_record(text: str) -> tuple[int, int] | None:
    """Return the window [from, to) in ns that is recorded in full; None for the empty text: no part."""
    if not text:
        return None
    word, colon, window = text.partition(":")
    if word != "all":
        raise UsageError("not a recording", where="--record", got=repr(text), expected=_EXPECTED)
    if not colon:
        return (0, 2**63 - 1)
    start, dots, end = window.partition("..")
    if not dots:
        raise UsageError("not a window", where="--record", got=repr(text), expected=_EXPECTED)
    bounds = (parse_time_ns(start), parse_time_ns(end))
    if bounds[0] >= bounds[1]:
        raise UsageError("empty window", where="--record", got=repr(text), expected=_EXPECTED)
    return bounds
