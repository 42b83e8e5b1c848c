"""``kvsim calibrate``: fit step times to measurements, judge a set, compare a run with real requests."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.calibrate_host import host
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.extras.calibrate.command import Measured
    from kvcache_sim.model.step_time_file import PhaseError

app = verb_app("Fit, judge and compare step times.")

_Only = Annotated[list[str] | None, Option("--only", metavar="COLUMN=VALUE", help="keep these rows")]
_ModelFile = Annotated[Path, Option("-o", "--output", help="model file to write")]
_Force = Annotated[bool, "overwrite files"]
_Degree = Annotated[int | None, Option("--tp", help="keep the rows of this TP degree")]


class MeasuredRows(Value):
    """The rows to fit to, and what they measure."""

    only: _Only = None
    model: Annotated[str, "model measured, as kvsim names it"] = ""
    gpu: Annotated[str, "GPU measured, as kvsim names it"] = ""
    links: Annotated[str, "all-reduces of several GPUs: a name, or FILE.csv"] = ""
    tensor_parallel: _Degree = None
    expert_parallel: Annotated[
        int, Option("--ep", min=1, help="EP degree: with --transfer, or of kernels")
    ] = 1
    data_parallel: Annotated[int, Option("--dp", min=1, help="DP ranks: with --transfer, or of kernels")] = 1
    unequal: Annotated[Path | None, "CSV of kernels of batches of unequal KV lengths (t_skew_us, …)"] = None
    transfer: Annotated[bool, "predict --tp from other degrees"] = False

    def measured(self, rows: Path) -> Measured:
        """Return the rows and their meaning; raises UsageError for degrees that cannot be."""
        from kvcache_sim.extras.calibrate.command import Measured

        if self.transfer and self.tensor_parallel is None:
            raise UsageError("--transfer needs the degree to predict", where="--tp")
        if not self.transfer and self.expert_parallel > (self.tensor_parallel or 1) * self.data_parallel:
            raise UsageError("--ep beyond tp × dp", hint="--only ep=… keeps the rows of a degree")
        ranks = 1 if self.transfer else self.data_parallel
        return Measured(rows, _filter(self.only), self.model, self.gpu, self.links, ranks, self.unequal)


class Correction(Value):
    """A source of step times that the rows correct."""

    base: Annotated[str, Option(metavar="SOURCE", help="step times that the rows correct")] = ""
    onto: Annotated[str, Option(metavar="SOURCE", help="write this source so corrected")] = ""


@app.command()
def fit(
    *,
    rows: Annotated[Path, Argument(help="CSV of iterations (iter_ms, …) or of kernels (kind, …)")],
    output: _ModelFile = Path("model.toml"),
    of: MeasuredRows,
    correction: Correction,
    picture: Annotated[Path | None, "predicted by measured: .html .svg .png"] = None,
    force: _Force = False,
) -> None:
    """Fit a parametric set and write it as a file that ``replica.step_time`` can name.

    A fifth of the rows is held out by a fixed seed; the printed error is of these alone. Of two forms, one
    base for all steps or one for decode steps and one for chunks, it takes the one that meets stretches of
    the other rows best that it was not fitted to, and prints both errors. Rows with a column
    seen_ms, or whose decode steps a chunk behind them makes long, are of an engine that launches a step
    before it looks at the last one's tokens: a step and the chunks that follow it are met by their sum.
    With --transfer the rows of degree --tp are all held out; of a file with columns ep and dp those of
    the topology --tp, --ep, --dp. With --base the rows scale that source's
    parts, and the error with and without it is printed by number of rows; --onto applies the scales to
    another deployment.

    \b
    Examples:
      kvsim calibrate fit iterations.csv --model llama-3.1-8b -o mine.toml
      kvsim calibrate fit rows.csv --tp 1 --base aiconfigurator:qwen3-32b@b300 -o corrected.toml
      kvsim calibrate fit degrees.csv --tp 4 --transfer -o tp4.toml
      kvsim calibrate fit mixture.csv --tp 2 --ep 4 --dp 2 --transfer -o tp2-ep4-dp2.toml
      kvsim calibrate fit kernels.csv --only gpu=RTX4090 --model llama-3.1-8b --gpu rtx4090
      kvsim calibrate fit kernels.csv --only tp=1 --ep 2 --dp 2 --model qwen3-30b-a3b --gpu rtx-pro-6000
      kvsim simulate -c s.yaml --set replica.step_time=mine.toml
    """
    from kvcache_sim.base.output import write_new
    from kvcache_sim.extras.calibrate.command import fit_rows
    from kvcache_sim.extras.calibrate.rows import phase_errors
    from kvcache_sim.extras.calibrate.topologies import transferred
    from kvcache_sim.extras.calibrate.transfer import Topology
    from kvcache_sim.model.step_time_file import Provenance, model_text

    measured = of.measured(rows)
    if correction.base or correction.onto:
        text = _corrected(measured, of.tensor_parallel, correction)
        write_new(output, text.encode(), force)
        _print_next(output)
        return
    fitted = (
        fit_rows(measured, of.tensor_parallel)
        if of.tensor_parallel is None or not of.transfer
        else transferred(measured, Topology(of.tensor_parallel, of.expert_parallel, of.data_parallel))
    )
    judged = fitted.judged() if len(fitted.unseen) else None
    errors = phase_errors(*judged) if judged is not None else []
    if picture is not None and judged is not None:
        from kvcache_sim.extras.calibrate.fit_picture import fit_picture_bytes

        write_new(picture, fit_picture_bytes(*judged, picture.suffix), force)
        typer.echo(f"wrote {picture}", err=True)
    source, degrees = f"{fitted.how}; {rows.name}", (of.expert_parallel, of.data_parallel)
    provenance = Provenance(of.model, of.gpu, fitted.tensor_parallel, source, *degrees)
    write_new(output, model_text(fitted.model, provenance, errors).encode(), force)
    _print_next(output, *_served(of.model))
    typer.echo(fitted.how, err=True)
    _print_errors(errors)


@app.command()
def requests(
    log: Annotated[
        Path, Argument(help="AIPerf .jsonl, vLLM or GuideLLM .json, LLMServingSim .csv, with lengths")
    ],
    output: _ModelFile = Path("model.toml"),
    budget: Annotated[
        int, Option("--max-num-batched-tokens", min=1, help="the engine's token budget of a step")
    ] = 8192,
    model: Annotated[str, "model served, as kvsim names it"] = "",
    gpu: Annotated[str, "GPU it ran on, as kvsim names it"] = "",
    tensor_parallel: Annotated[int, Option("--tp", min=1, help="its TP degree")] = 1,
    force: _Force = False,
) -> None:
    """Fit a parametric set to a log of requests alone, with the interval of all that it finds.

    Each answer's time is that of as many steps as it has tokens, with the chunks of prompts that were read
    meanwhile; each TTFT that waited for no other prompt shows its own. A fifth of the requests is held out.

    \b
    Examples:
      kvsim calibrate requests profile_export.jsonl -o mine.toml
      kvsim calibrate requests bench.json --max-num-batched-tokens 2048 --model qwen3-8b --gpu l40s
    """
    from kvcache_sim.base.output import write_new
    from kvcache_sim.extras.calibrate.request_fit import fit_requests
    from kvcache_sim.extras.calibrate.timed import timed_requests
    from kvcache_sim.model.step_time_file import Provenance, model_text

    timed, said = timed_requests(log)
    for remark in said:
        typer.echo(f"{log}: {remark}", err=True)
    fitted = fit_requests(timed, budget)
    provenance = Provenance(model, gpu, tensor_parallel, f"fitted to {len(timed)} requests; {log.name}")
    write_new(output, model_text(fitted.model, provenance, list(fitted.errors)).encode(), force)
    typer.echo(f"{'':44}{'value':>10}{'90 % interval':>22}  unit")
    for term in fitted.terms:
        interval = f"{term.low:.4g} to {term.high:.4g}"
        typer.echo(f"{term.name:44}{term.value:10.4g}{interval:>22}  {term.unit}")
        if term.unclear:
            typer.echo(f"    unclear: {term.unclear}")
    for error in fitted.errors:
        latency = {"decode": "TPOT", "prefill": "TTFT"}[error.phase]
        typer.echo(
            f"{latency} of {error.rows} requests held out: mean |error| {error.mape:.1f} %, "
            f"p95 {error.p95:.1f} %, mean {error.bias:+.1f} %"
        )
    offset = [f"replica.client_offset={fitted.client_ms:.1f}ms"] if fitted.client_ms >= 0.05 else []
    _print_next(output, *_served(model), *offset)


app.command()(host)


@app.command()
def check(
    rows: Annotated[Path, Argument(help="CSV of iterations that the set was not fitted to")],
    step_time: Annotated[str, Argument(help="shipped set, model file, or roofline:MODEL@GPU")],
    only: _Only = None,
    tensor_parallel: _Degree = None,
) -> None:
    """Print the error of an existing set on measured iterations, by sums where ``fit`` would fit sums.

    \b
    Examples:
      kvsim calibrate check new.csv h100-llama-3.1-8b-tp1
      kvsim calibrate check new.csv mine.toml --tp 2
    """
    from kvcache_sim.extras.calibrate.command import Measured, check_rows
    from kvcache_sim.extras.calibrate.rows import phase_errors

    judged, predicted, sums = check_rows(Measured(rows, _filter(only)), tensor_parallel, step_time)
    if sums:
        typer.echo("steps are seen late: errors of sums, a step and the chunks that follow it", err=True)
    _print_errors(phase_errors(judged, predicted))


@app.command()
def shipped(
    folder: Annotated[Path, Argument(help="folder with the calibration files of the train split")],
    output: Annotated[Path, Option("-o", "--output", metavar="DIR", help="folder to write to")],
    force: _Force = False,
) -> None:
    """Fit every packaged set anew, from the files of the train split alone, and print its errors.

    The same files give the same bytes; docs/data/packaged-sets.toml names files, split and errors.

    \b
    Examples:
      kvsim calibrate shipped calibration -o sets
    """
    import tomllib

    from kvcache_sim.base.output import write_new
    from kvcache_sim.extras.calibrate.shipped import shipped_texts

    for name, text, errors in shipped_texts(folder):
        try:
            output.mkdir(exist_ok=True)
        except OSError as error:
            raise InputOutputError(f"cannot be made: {error.strerror}", where=str(output)) from None
        write_new(output / f"{name}.toml", text.encode(), force)
        typer.echo(f"{name}: {tomllib.loads(text)['source']}" + ("" if errors else ", never measured"))
        if errors:
            _print_errors(errors)
    typer.echo(f"wrote {output}", err=True)


@app.command()
def servers() -> None:
    """Print the error of measured kernels against real servers, without a fit and with fitted host costs.

    The runs are those that aiconfigurator-core lists (extra hardware), without repeats, and of them only the
    half whose configurations may be looked at. Minutes.

    \b
    Examples:
      kvsim calibrate servers
    """
    from kvcache_sim.extras.calibrate import servers as real
    from kvcache_sim.extras.calibrate.server_runs import server_runs
    from kvcache_sim.extras.calibrate.servers import with_fitted_costs

    runs, distinct = server_runs()
    predicted, missing = real.predict_servers(runs)
    typer.echo(f"{distinct} distinct runs, {len(runs)} of them looked at, {len(predicted)} with kernels")
    for reason, count in missing.most_common():
        typer.echo(f"  {count} without: {reason}")
    fitted = with_fitted_costs(predicted)
    typer.echo(f"{'median / mean error, %':44}{'runs':>6}{'TPOT':>16}{'TTFT':>16}")
    for what, found in (("kernels alone", predicted), ("parts scaled, host costs fitted", fitted)):
        for engine in ("", "vllm", "sglang"):
            chosen = [one for one in found if engine in ("", one.run.label[0])]
            if chosen:
                e = real.server_errors(chosen)
                tpot = f"{e.tpot_median:.1f} / {e.tpot_mean:.1f}"
                ttft = f"{e.ttft_median:.1f} / {e.ttft_mean:.1f}"
                typer.echo(f"{what + (', ' + engine if engine else ''):44}{e.runs:6}{tpot:>16}{ttft:>16}")
    typer.echo(f"TPOT off by more than {real.FAR_OFF} ×, costs fitted:")
    for (engine, version, model), system, count, every in real.far_off(fitted):
        typer.echo(
            f"  {count:4} of {every:4}  {model} on {system} under {engine} {version or '(no version)'}"
        )


@app.command()
def coverage(
    by: Annotated[Literal["run", "deployment", "gpu", "engine"], "what is left out"] = "run",
    output_format: Annotated[Literal["text", "json"], Option("--format")] = "text",
) -> None:
    """Print how often the stated 90 % intervals hold the truth, on every measured run.

    Each run is judged by the rule without it: with --by gpu without all runs on its GPU, and so on.
    A half-width is half an interval over the true value.

    \b
    Examples:
      kvsim calibrate coverage
      kvsim calibrate coverage --by deployment --format json
    """
    from kvcache_sim.extras.calibrate import coverage as covered
    from kvcache_sim.model.run_errors import measured_runs

    runs = measured_runs()
    found = list(covered.judged(runs, by))
    cells = covered.cells(found)
    total = covered.cell(covered.Topic("all", "", "", "", ""), found)
    if output_format == "json":
        rows = [{**asdict(one), "ratio": one.ratio, "meets_goal": one.meets_goal} for one in cells]
        typer.echo(json.dumps({"left_out": by, "held": total.held, "figures": total.count, "cells": rows}))
        return
    typer.echo(
        f"{'source, model, engine, load':46}{'n':>5}{'held':>7}{'± %':>8}{'|error| %':>10}{'ratio':>6}"
    )
    for one in [*cells, total]:
        kind = ", ".join(word for word in (one.source, one.family, one.engine, one.load) if word)
        name = f"  {one.figure}" if one.figure else kind.replace("near capacity", "near")
        mark = "" if one.meets_goal else " *"
        typer.echo(
            f"{name:46}{one.count:5}{one.held:7.0%}{100 * one.half_width:8.1f}"
            f"{100 * one.error:10.1f}{one.ratio:6.1f}{mark}"
        )
    typer.echo(f"* less than {covered.LEAST_HELD:.0%} held, or a ratio above {covered.MOST_RATIO:g}")
    typer.echo(f"{total.held:.1%} of {total.count} figures of {len(runs)} runs are held, each {by} left out")


@app.command()
def compare(
    run: Annotated[Path, Argument(help="run directory")],
    log: Annotated[
        Path, Argument(help="AIPerf or SGLang .jsonl, vLLM or GuideLLM .json, LLMServingSim .csv")
    ],
    as_json: Annotated[bool, Option("--json", help="print JSON")] = False,
) -> None:
    """Compare a run with the real requests it imitates, paired by request id or by when they started.

    \b
    Examples:
      kvsim calibrate compare runs/1-mine-3fa9c1 profile_export.jsonl
    """
    from kvcache_sim.metrics.load_run import load_run
    from kvcache_sim.report.fidelity import compare as compare_with_log
    from kvcache_sim.report.request_log.read import read_request_log

    real = read_request_log(log)
    found = compare_with_log(load_run(run).requests(), real)
    if real.failed:
        typer.echo(f"{log}: {real.failed} failed requests left out", err=True)
    counts = f"{found.paired_requests} of {found.real_requests} real, {found.simulated_requests} simulated"
    typer.echo(f"paired by {found.paired_by}: {counts} requests", err=True)
    if as_json:
        figures = json.dumps(asdict(found)).replace(": NaN", ": null")  # a log without TTFT has none
        typer.echo(figures)
        return
    typer.echo(f"{'':12}{'real s':>12}{'simulated s':>14}{'error %':>10}")
    for row in found.latencies:
        name = f"{row.metric} {row.statistic}"
        typer.echo(f"{name:12}{row.real_s:12.4f}{row.simulated_s:14.4f}{row.error_percent:+10.2f}")
    for metric, mape in found.per_request_mape.items():
        typer.echo(f"{metric}: mean |error| a request {mape:.2f} %")


def _filter(only: list[str] | None) -> dict[str, str]:
    """Return ``COLUMN=VALUE`` texts as a mapping."""
    for text in only or ():
        if "=" not in text:
            raise UsageError("not COLUMN=VALUE", where="--only", got=repr(text))
    return {text.partition("=")[0]: text.partition("=")[2] for text in only or ()}


def _corrected(measured: Measured, tensor_parallel: int | None, correction: Correction) -> str:
    """Print the errors with and without a base by number of rows; return the corrected source's file."""
    from kvcache_sim.extras.calibrate.command import correct_base

    if not correction.base:
        raise UsageError("--onto needs the source that the rows are of", where="--base")
    corrected = correct_base(measured, tensor_parallel, correction.base, correction.onto)
    typer.echo(f"{corrected.dropped} rows of compilation left out")
    typer.echo("MAPE % on rows held out, with the base / without it, by the number of rows fitted")
    phases = list(dict.fromkeys(phase for row in corrected.curve.values() for phase in row))
    typer.echo(f"{'rows':>6}" + "".join(f"{phase:>18}" for phase in phases))
    for count, row in corrected.curve.items():
        cells = (row[phase] for phase in phases)
        texts = (f"{mape:.1f} / " + ("–" if alone is None else f"{alone:.1f}") for mape, alone in cells)
        typer.echo(f"{count:6}" + "".join(f"{text:>18}" for text in texts))
    return corrected.text


def _served(model: str) -> list[str]:
    """Return the setting of a model to serve where a file of step times names none."""
    return [] if model else ["model=llama-3.1-8b"]


def _print_next(written: Path, *settings: str) -> None:
    """Print which file was written and, as the next command, a run with its step times, on stderr."""
    from kvcache_sim.report.plain_table import next_line

    words = [word for each in (f"replica.step_time={written}", *settings) for word in ("--set", each)]
    typer.echo(f"wrote {written}", err=True)
    typer.echo(next_line("simulate", "-c", "preset:quickstart", *words), err=True)


def _print_errors(errors: list[PhaseError]) -> None:
    typer.echo(f"{'phase':10}{'rows':>7}{'MAPE %':>9}{'p95 %':>9}{'bias %':>9}")
    for e in errors:
        typer.echo(f"{e.phase:10}{e.rows:7}{e.mape:9.2f}{e.p95:9.2f}{e.bias:+9.2f}")
