"""Closed loops of the servers that ``aiconfigurator-core`` lists, by its kernels and by the roofline.

They have the host that their engine's release chooses. SGLang's was fitted to other servers
(``sglang_one_client.py``), vLLM's to those of at most 8 clients here (``vllm_few_clients.py``).
"""

from __future__ import annotations

import contextlib
import heapq
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate import servers
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import Deployment
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import is_mixture
from kvcache_sim.extras.calibrate.aiconfigurator.library import model_configuration
from kvcache_sim.extras.calibrate.closed_loop import CLIENT_MS, CLIENT_MS_PER_TOKEN, StepTimes, _Loop
from kvcache_sim.extras.calibrate.server_runs import ServerRun, server_runs
from kvcache_sim.model.adjusted import CAPTURED_TOKENS
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.hosts import HostSpec, load_host
from kvcache_sim.model.releases import Subject, newest_equal
from kvcache_sim.model.roofline import roofline_step_time
from kvcache_sim.model.roofline_name import parse_roofline
from kvcache_sim.model.step_time import StepBatch

_GPUS = {f"{name}_sxm": name for name in ("h100", "h200", "b200", "b300", "a100")} | {"l40s": "l40s"}
#: The library's formats of weights that the roofline has, by its own name ("": the model's).
_FORMATS = {"fp8": "fp8", "fp8_block": "fp8", "bfloat16": "", "fp4": "fp4", "nvfp4": "fp4"}
Values = dict[str, float]


class _Started(_Loop):
    """A closed loop that also notes the start of each prompt's first chunk; requests travel ``client_ms``.

    ``token_ms`` is what a prompt token adds to that, where it is not the usual ``CLIENT_MS_PER_TOKEN``.
    """

    __slots__ = ("client_ms", "started", "token_ms")

    def _send(self) -> None:
        before = self.sent_requests
        super()._send()
        for position, (at, request) in enumerate(self.arrivals if self.sent_requests > before else ()):
            if request == before:
                moved = self.client_ms - CLIENT_MS
                moved += (self.token_ms - CLIENT_MS_PER_TOKEN) * self.load.prompts[request]
                self.arrivals[position] = (at + moved, request)
        heapq.heapify(self.arrivals)

    def _chunks(self, budget: int) -> tuple[int, int, list[int]]:
        left, done = budget, self.started_tokens
        for request in self.queue:
            take = min(left, self.load.prompts[request] - done)
            if take <= 0:
                break
            if not done:
                self.started[request] = self.clock[2]
            left, done = left - take, 0
        return super()._chunks(budget)


def host_of(run: ServerRun) -> HostSpec:
    """Return the host that the newest release of a run's engine chooses on its GPU."""
    gpu = run.deployment.system.removesuffix("_sxm")
    return load_host(newest_equal(run.label[0]).value("host", Subject(gpu=gpu)))


def with_host(step_ms: StepTimes, host: HostSpec, layers: int) -> StepTimes:
    """Return the step times with those of a host."""
    extra_ms = ((host.step_extra_ns or 0) + layers * (host.step_extra_per_layer_ns or 0)) / 1e6
    launch_ms = layers * (host.launch_per_layer_ns or 0) / 1e6
    captured = 0 if host.eager_chunks else CAPTURED_TOKENS

    def times(new: int, past: int, decodes: int, kv_tokens: int) -> float:
        own_ms = step_ms(new, past, decodes, kv_tokens) + extra_ms
        return max(own_ms, launch_ms if new and new + decodes > captured else 0.0)

    return times


def layers_of(model: str) -> int:
    given = model_configuration(model)
    return int(given.get("text_config", given)["num_hidden_layers"])


def served(step_ms: StepTimes, run: ServerRun, host: HostSpec) -> tuple[float, Values]:
    """Return the share of TTFT that is queueing, and the figures, of one data-parallel rank."""
    times = with_host(step_ms, host, layers_of(run.deployment.model))
    load = servers._load(run, max(1, round(run.concurrency / run.deployment.data_parallel)))
    loop = _Started(times, run.launch, load)
    loop.client_ms = (host.client_offset_ns or 0) / 1e6
    loop.token_ms = (host.client_offset_per_token_ns or 1e6 * CLIENT_MS_PER_TOKEN) / 1e6
    loop.started = np.zeros(len(load.prompts))
    loop.run()
    sent, first, done = (each[:, 2] for each in (loop.sent, loop.first, loop.done))
    ttft = float((first - sent).mean())
    client_ms = loop.client_ms + loop.token_ms * float(np.mean(load.prompts))
    tpot = float(((done - first) / np.maximum(np.array(load.outputs) - 1, 1)).mean())
    figures = {"ttft_mean": ttft, "tpot_mean": tpot, "e2e_mean": float((done - sent).mean())}
    return (float((loop.started - sent).mean()) - client_ms) / ttft, figures


def _kept(step_ms: StepTimes) -> StepTimes:
    """Return step times that compute a step once, its KV rounded to three digits."""
    known: dict[tuple[int, int, int, int], float] = {}

    def times(new: int, past: int, decodes: int, kv_tokens: int) -> float:
        unit = 10 ** max(len(str(kv_tokens)) - 3, 0)
        step = (new, past, decodes, kv_tokens // unit * unit)
        if step not in known:
            known[step] = step_ms(*step)
        return known[step]

    return times


def roofline(deployment: Deployment, prompt_tokens: int) -> StepTimes | None:
    """Return the roofline's step times; None for pipelines, ranks, GPUs and formats that it has not."""
    gpu, weights = _GPUS.get(deployment.system), _FORMATS.get(deployment.dtypes.weights)
    if gpu is None or weights is None or deployment.pipeline_parallel * deployment.data_parallel > 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(model_configuration(deployment.model)))
        degree = deployment.tensor_parallel
        spec = parse_roofline(f"{path}@{gpu}:tp{degree}" + (f",{weights}" if weights else "")).spec()
    table = roofline_step_time(spec, load_gpu(gpu), degree, None).table(32_768, 4096)

    def step_ms(new: int, past: int, decodes: int, kv_tokens: int) -> float:
        prompts = max(1, round(new / prompt_tokens))
        chunks = (
            tuple((new // prompts + (i < new % prompts), past // prompts) for i in range(prompts))
            if new
            else ()
        )
        return (
            table.step(StepBatch(chunks, decodes, kv_tokens, -(-kv_tokens // decodes) if decodes else 0))
            / 1e6
        )

    return _kept(step_ms)


def simulated() -> Iterator[tuple[list[str], float, Values, Values]]:
    """Yield kind, queueing, measured and simulated figures of each run, by kernels, then by the roofline."""
    of: dict[Deployment, list[ServerRun]] = defaultdict(list)
    for run in server_runs()[0]:
        of[run.deployment].append(run)
    seen: Counter[str] = Counter()
    for source in ("kernel tables", "roofline"):
        for deployment, own in of.items():
            with contextlib.suppress(UsageError):  # no kernels, or weights that do not fit
                kernels = servers._kernels(deployment).asked() if source == "kernel tables" else None
                with kernels or contextlib.nullcontext() as step_ms:
                    for run in own:
                        times = _kept(step_ms) if step_ms else roofline(deployment, run.prompt_tokens)
                        if times is not None:
                            yield _row(source, run, seen, *served(times, run, host_of(run)))


def _row(
    source: str, run: ServerRun, seen: Counter[str], queue: float, figures: Values
) -> tuple[list[str], float, Values, Values]:
    one, (engine, version, _) = run.deployment, run.label
    gpu = one.system.removesuffix("_sxm")
    deployment = f"{one.model.split('/')[-1]}@{gpu} {engine} {version}".strip()
    degrees = f"tp{one.tensor_parallel}" + (f"-ep{one.expert_parallel}" if one.expert_parallel > 1 else "")
    degrees += f"-dp{one.data_parallel}" if one.data_parallel > 1 else ""
    name = f"{degrees} {one.dtypes.weights} {run.prompt_tokens}+{run.output_tokens} x{run.concurrency}"
    seen[source + deployment + name] += 1
    again = f" #{seen[source + deployment + name]}" if seen[source + deployment + name] > 1 else ""
    family = "moe" if is_mixture(model_configuration(one.model)) else "dense"
    measured = {"ttft_mean": run.ttft_ms, "tpot_mean": run.tpot_ms}
    measured["e2e_mean"] = run.ttft_ms + run.tpot_ms * (0.9 * run.output_tokens - 1)
    return (
        [source, family, engine, gpu, deployment, name.replace("  ", " ") + again],
        queue,
        measured,
        figures,
    )
