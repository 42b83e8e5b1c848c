"""Simulate every whole run that was measured, by each kind of source: the data of the stated intervals.

    python benches/whole_runs.py [GROUP …]

Prints ``python/kvcache_sim/model/data/run_errors.toml`` anew, of the groups named or of all (some 10 CPU
minutes). ``kvcache_sim.model.run_intervals.intervals_text()`` then makes ``run_intervals.json``. Needs
../shared and the extra ``hardware``.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import kvcache_sim as kv
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]
import routing_study  # noqa: E402
import sglang_one_client  # noqa: E402
import vllm_streams  # noqa: E402
import whole_runs_servers  # noqa: E402
from kvcache_sim.base.errors import UsageError  # noqa: E402
from kvcache_sim.extras.calibrate.command import Measured, fit_rows  # noqa: E402
from kvcache_sim.extras.calibrate.fit import predict_ms  # noqa: E402
from kvcache_sim.extras.calibrate.rows import read_iterations  # noqa: E402
from kvcache_sim.extras.calibrate.runs import compiles  # noqa: E402
from kvcache_sim.extras.calibrate.shipped import MIXTURES  # noqa: E402
from kvcache_sim.model.adjusted import ScaledStepTime  # noqa: E402
from kvcache_sim.model.model_file import load_model  # noqa: E402
from kvcache_sim.model.run_errors import RATE  # noqa: E402
from kvcache_sim.model.served_kernels import is_sum_of_kernels, served_kernels  # noqa: E402
from kvcache_sim.model.step_time import StepTime  # noqa: E402
from kvcache_sim.model.step_time_file import Provenance, model_text  # noqa: E402
from kvcache_sim.model.step_times import load_step_time  # noqa: E402
from kvcache_sim.scenario.load import load_scenario  # noqa: E402
from kvcache_sim.scenario.requests import read_requests  # noqa: E402
from kvcache_sim.simulation import simulate  # noqa: E402
from support import h100_stages, llm_d_guide  # noqa: E402

SHARED = ROOT.parent / "shared"
STEPS = (0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.35, 1.6)
DATA = ROOT / "python/kvcache_sim/model/data/run_errors.toml"
Values = dict[str, float]
Row = list[str]


def figures(columns: Any, settled_ns: float = 0) -> Values:
    """Return the figures of requests, times in ms, and ``queue``, the share of the mean TTFT if known."""
    names = ("arrival_ns", "first_token_ns", "finish_ns", "output_tokens")
    arrival, first, finish, output = (np.asarray(columns[name], float) for name in names)
    kept = arrival >= settled_ns
    many = kept & (output > 1)
    ttft = (first - arrival)[kept] / 1e6
    took_s = (finish[kept].max() - arrival[kept].min()) / 1e9
    found = {
        "ttft_mean": ttft.mean(),
        "ttft_p50": np.median(ttft),
        "ttft_p99": np.percentile(ttft, 99),
        "tpot_mean": ((finish - first)[many] / (output[many] - 1)).mean() / 1e6,
        "e2e_mean": (finish - arrival)[kept].mean() / 1e6,
        RATE: output[kept].sum() / took_s,
    }
    if "queue_ns" in columns:
        found["queue"] = np.asarray(columns["queue_ns"], float)[kept].mean() / 1e6 / ttft.mean()
    return {name: float(value) for name, value in found.items()}


def replays(
    settings: list[str], trace: Path, settled_ns: float = 0, base: Path | None = None
) -> dict[float, Values]:
    """Return the figures of a scenario as it is (1.0) and with every step at each of ``STEPS``."""
    scenario = load_scenario(base, settings, trace)
    requests = read_requests(scenario)
    found = {}
    for factor in (1.0, *STEPS):
        machines = tuple(
            replace(
                own, step_time=ScaledStepTime(own.step_time).times("decode", factor).times("chunk", factor)
            )
            for own in scenario.settings.machines
        )
        found[factor] = figures(
            simulate(replace(scenario.settings, machines=machines), requests).requests, settled_ns
        )
    return found


class Group:
    """Rows and replays of one group of runs, and its text."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.rows, self.replays = names, [], []

    def add(self, kind: Row, queue: float | None, measured: Values, simulated: Values) -> None:
        """Add a row; ``kind`` is source, family, engine, GPU, deployment and run."""
        cells = [
            f"{values[name]:.5g}" if name in measured else ""
            for name in self.names
            for values in (measured, simulated)
        ]
        self.rows.append(",".join([*kind, "" if queue is None else f"{queue:.2f}", *cells]))

    def add_open(self, kind: Row, measured: Values, found: dict[float, Values]) -> None:
        """Add a row of an open loop with its replays."""
        self.add(kind, found[1.0]["queue"], measured, found[1.0])
        for name in self.names:
            if name in measured:
                ratios = (f"{found[step][name] / found[1.0][name]:.4g}" for step in STEPS)
                self.replays.append(",".join([kind[0], kind[5], name, *ratios]))

    def text(self, head: str) -> str:
        """Return the group behind its title, origin, licence and description."""
        body = (
            f"{head}figures = {json.dumps(list(self.names))}\nrows = '''\n" + "\n".join(self.rows) + "\n'''\n"
        )
        return body + ("replays = '''\n" + "\n".join(self.replays) + "\n'''\n" if self.replays else "")


ALL = ("ttft_mean", "ttft_p50", "ttft_p99", "tpot_mean", "e2e_mean", RATE)


def streams(folder: Path) -> Group:
    """Streams of vLLM on an H100: sets fitted to the sweep alone, and sources that never saw it."""
    group = Group(ALL)
    for model, blocks, names in (
        ("llama-3.1-8b", 28123, ("talks", "talks-salted", "long", "peak", "bursts")),
        ("qwen3-30b-a3b", 8535, ("moe-talks", "moe-peak", "moe-bursts")),
    ):
        rows = ROOT / f"benches/measured/h100-{model}-iterations.csv.gz"
        own = folder / f"{model}.toml"
        fitted = fit_rows(Measured(rows, {"segment": "sweep"}, model, "h100"), None)
        own.write_text(model_text(fitted.model, Provenance(model, "h100", 1, "measured"), []))
        is_dense = model == "llama-3.1-8b"
        composed, host = (
            "h100-llama-3-8b-tp1",
            "replica.host=h100-launch-" + ("dense" if is_dense else "mixture"),
        )
        sources = {
            "own iterations": [str(own)],
            "roofline": [f"roofline:{model}@h100"],
            "kernel tables": [f"aiconfigurator:{model}@h100"],
            **({"composed set": [composed]} if is_dense else {}),
            "with launch times": [composed if is_dense else f"roofline:{model}@h100", host],
        }
        fixed = ["replica.scheduler=vllm", "replica.max_num_seqs=256", "replica.max_num_batched_tokens=8192"]
        fixed += ["replica.async_scheduling=length", "cache.semantics=vllm", "cache.block_size=16"]
        fixed += ["trace.block_size=16", f"tiers.gpu.capacity={blocks} blocks", f"model={model}"]
        for name in names:
            trace = folder / f"{name}.jsonl"
            trace.write_text(
                "\n".join(vllm_streams.lines(vllm_streams.STREAMS[name.removesuffix("-salted")]())) + "\n"
            )
            salted = ["cache.enabled=false"] if name.endswith("-salted") else []
            for source, (step_time, *more) in sources.items():
                kind = [source, "dense" if is_dense else "moe", "vllm", "h100", f"{model}@h100", name]
                # Requests were recorded at temperature 1 without top-k and top-p.
                plain = ["replica.sampling=plain"] if is_sum_of_kernels(step_time) else []
                settings = [*fixed, *salted, f"replica.step_time={step_time}", *more, *plain]
                group.add_open(kind, _served(model, name), replays(settings, trace))
    return group


def _served(model: str, stream: str) -> Values:
    with gzip.open(ROOT / f"benches/measured/h100-{model}-requests.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["segment"] == stream]
    times = {
        f"{key}_ns": [1000 * int(row[f"{key}_us"]) for row in rows]
        for key in ("arrival", "first_token", "finish")
    }
    return figures({**times, "output_tokens": [int(row["output"]) for row in rows]})


def stages(folder: Path) -> Group:
    """Published stages on an H100, with the 8 ms between client and scheduler that were fitted to them."""
    group = Group(ALL[:-1])
    for row in h100_stages.stage_rows():
        trace = folder / f"{row['rate_rps']}.jsonl"
        trace.write_text("".join(json.dumps(request) + "\n" for request in h100_stages._requests(row)))
        real = h100_stages.measured(row)
        measured = {"ttft_mean": real.ttft_ms, "tpot_mean": real.itl_ms, "e2e_mean": real.e2e_ms}
        measured |= {"ttft_p50": float(row["ttft_median_ms"]), "ttft_p99": float(row["ttft_p99_ms"])}
        settings = ["cache.block_size=16", "model=llama-2-7b", "trace.block_size=16", "cache.semantics=vllm"]
        settings += ["replica.step_time=roofline:llama-2-7b@h100", *h100_stages.ASSUMED]
        settings += [f"replica.{key}={row[key]}" for key in ("max_num_seqs", "max_num_batched_tokens")]
        kind = ["roofline", "dense", "vllm", "h100", "llama-2-7b@h100", f"{row['rate_rps']}/s"]
        group.add_open(kind, measured, replays(settings, trace, 20e9))
    return group


def sharegpt(_: Path) -> Group:
    """ShareGPT on an RTX 4090."""
    group = Group(("ttft_mean", "tpot_mean", "e2e_mean"))
    measured = {"ttft_mean": 65.5e3, "tpot_mean": 32.4, "e2e_mean": 86.6e3}
    trace, base = SHARED / "traces/sharegpt_llama31_8b_300_b16.jsonl", ROOT / "scenarios/vllm-rtx4090.yaml"
    for source, *settings in (
        ("composed set", "replica.step_time=rtx4090-llama-3.1-8b-tp1"),
        ("roofline", "replica.step_time=roofline:llama-3.1-8b@rtx4090", "replica.sampler=fused"),
    ):
        kind = [source, "dense", "vllm", "rtx4090", "llama-3.1-8b@rtx4090", "rtx4090"]
        group.add_open(kind, measured, replays(settings, trace, base=base))
    return group


def _in_service(name: str, model: str) -> StepTime:
    return served_kernels(load_step_time(name), name, load_model(model))


def iterations(_: Path) -> Group:
    """Streams on B300: mean time between tokens, by the batches that the engine had."""
    group = Group(("tpot_mean",))
    dense = [
        ("qwen3-32b", f"tp{tp}", {"tp": str(tp)}, "iter_b300_qwen3_32b.csv", "dense") for tp in (1, 2, 8)
    ]
    moe = [(one.model, one.topology.suffix, one.only, "iter_b300_moe.csv.gz", "moe") for one in MIXTURES]
    for model, degrees, only, file, family in (*dense, *moe):
        path = SHARED / "calibration" / file
        rows = read_iterations(path, {**only, "segment": "real"})
        rows = rows.take(~compiles(rows))
        tensor = int(only["tp"])
        named = {
            "own iterations": lambda path=path, only=only, tensor=tensor: (
                fit_rows(Measured(path, {**only, "segment": "sweep"}, "", "b300"), tensor).model
            ),
            "roofline": partial(_in_service, f"roofline:{model}@b300:tp{tensor}", model),
            "kernel tables": partial(
                _in_service, f"aiconfigurator:{model}@b300:{degrees.replace('-', ',')}", model
            ),
        }
        for source, load in named.items():
            try:
                ms = predict_ms(load(), rows)
            except UsageError:
                continue  # the library has no kernels of it
            decodes = rows.decode_sequences
            measured, ours = (float((each * decodes).sum() / decodes.sum()) for each in (rows.iter_ms, ms))
            kind = [source, family, "vllm", "b300", f"{model}@b300", degrees]
            group.add(kind, None, {"tpot_mean": measured}, {"tpot_mean": ours})
    return group


def routing(_: Path) -> Group:
    """A public routing study: each stage of its ladder under each policy."""
    group = Group(("ttft_mean", RATE))
    for study, source, model in (
        ("qwen3-32b", "composed set", "qwen3-32b"),
        ("llama-70b", "roofline", "llama-3.1-70b"),
    ):
        real = routing_study.measured(study)
        for policy in routing_study.POLICIES:
            for row in routing_study.simulated(study, policy):
                own = real[row.rate, policy]
                kind = [
                    source,
                    "dense",
                    "vllm behind a router",
                    "h100",
                    f"{model}@h100",
                    f"{policy} {row.rate}/s",
                ]
                measured = {"ttft_mean": 1e3 * own["ttft_mean_s"], RATE: own["output_tokens_per_s"]}
                group.add(
                    kind, row.queue, measured, {"ttft_mean": 1e3 * row.ttft_mean_s, RATE: row.tokens_per_s}
                )
    return group


#: Mean TTFT and E2E in s and thousand tokens/s, by CPU tier and prefix tokens.
_GUIDE = {
    (False, 30_000): (9.0, 37.8, 38.5),
    (True, 30_000): (6.7, 31.0, 46.7),
    (False, 8000): (0.12, 18.4),
    (True, 8000): (0.13, 18.6),
}


def offload_guide(_: Path) -> Group:
    """A guide to a CPU tier, at both weights of the router's prefix scorer."""
    group = Group(("ttft_mean", "e2e_mean", RATE))
    for (cpu, prefix), real in _GUIDE.items():
        for router in ("the guide's scorers, prefix 1", "the guide's scorers, prefix 2"):
            tier = {"tiers.cpu.capacity": "41000 blocks"} if cpu else {}
            own = {"tiers.gpu.capacity": "9271 blocks", "workload.prefix_tokens": prefix}
            found = kv.simulate(**llm_d_guide.SCENARIO, **llm_d_guide.ROUTERS[router], **tier, **own).summary
            latency, rate = found["latency"], found["throughput"][RATE] * (prefix + 1280) / 1024
            run = f"{'with' if cpu else 'without'} a CPU tier prefixes of {prefix}"
            kind = ["composed set", "dense", "vllm behind a router", "h100", "qwen3-32b@h100", run]
            ours = {"ttft_mean": latency["ttft"]["avg"], "e2e_mean": latency["e2e"]["avg"], RATE: rate}
            measured = dict(zip(group.names, (1e3 * value for value in real), strict=False))
            group.add(kind, latency["queue"]["avg"] / latency["ttft"]["avg"], measured, ours)
    return group


def servers(_: Path) -> Group:
    """Real servers in closed loops, by kernel tables and by the roofline."""
    group = Group(("ttft_mean", "tpot_mean", "e2e_mean"))
    for kind, queue, measured, simulated in whole_runs_servers.simulated():
        group.add(kind, queue, measured, simulated)
    return group


def one_client(_: Path) -> Group:
    """SGLang servers with one client on NVIDIA GPUs, by hosts that were fitted to all other models."""
    group = Group(("ttft_mean", "tpot_mean", "e2e_mean"))
    rows = sglang_one_client.read_rows()
    for number, (row, found) in enumerate(sglang_one_client.left_out(rows).items()):
        if row.is_judged:
            answer = int(row.run.split("+")[1]) - 1
            kind = ["roofline", row.family, "sglang", row.gpu, f"{row.model}@{row.gpu} sglang"]
            values = [
                {"ttft_mean": one.ttft, "tpot_mean": one.tpot, "e2e_mean": one.ttft + answer * one.tpot}
                for one in (row.measured, found)
            ]
            group.add([*kind, f"{row.hardware} {row.run} x1 #{number}"], 0.0, *values)
    return group


GROUPS: dict[str, Callable[[Path], Group]] = {
    "streams": streams,
    "stages": stages,
    "sharegpt": sharegpt,
    "iterations": iterations,
    "servers": servers,
    "one_client": one_client,
    "routing": routing,
    "offload_guide": offload_guide,
}


def parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the head of the file (named ``""``), then each group with its text."""
    first, *rest = text.split("\n[")
    yield "", first + "\n"
    for part in rest:
        yield part.partition("]")[0], "[" + part.rstrip("\n") + "\n"


def main(names: list[str]) -> None:
    """Print the file with some groups anew; ``hosts_2023`` is published as it stands there."""
    for name, text in parts(DATA.read_text()):
        if name in GROUPS and (not names or name in names):
            head = text.partition("figures = ")[0]
            with tempfile.TemporaryDirectory() as folder:
                text = GROUPS[name](Path(folder)).text(head)
        print(text.rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
