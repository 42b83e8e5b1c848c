"""A vLLM engine core in this process, with a record of every scheduler iteration, every request, and its
memory.

Needs vLLM and a GPU; nothing else of kvsim. Weights are random (``load_format=dummy``) and prompts are token
numbers, so a directory with a ``config.json`` is enough. The loop is the engine process's own
(``EngineCoreProc._process_engine_step``) without the sockets to a front end.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from statistics import pstdev
from typing import Any

from vllm_settle import settle

#: The columns of a file of iterations: those that ``kvsim calibrate fit`` reads, the time at which the step
#: was scheduled, and its observed duration before ``vllm_settle.py``.
ITERATION_COLUMNS = (
    "segment,start_us,prefill_tokens,prefill_requests,prefill_past_kv_tokens,"
    "decode_requests,decode_kv_tokens,decode_kv_std,decode_kv_max,seen_ms,iter_ms"
)
#: The columns of a file of requests; times in microseconds from the start of the stream.
REQUEST_COLUMNS = "segment,request,arrival_us,first_token_us,finish_us,prompt,cached,output,preemptions"


@dataclass(slots=True)
class Step:
    """One iteration: the times of its scheduling and of its tokens, and the work that it computed."""

    scheduled_ns: int
    done_ns: int
    new: Any
    cached_ids: list[str]
    cached_computed: list[int]
    tokens: dict[str, int]


@dataclass(slots=True)
class Sent:
    """One request: its due time, its tokens, and the times of the engine's answers."""

    arrival_ns: int
    prompt: int
    first_ns: int = 0
    finish_ns: int = 0
    output: int = 0
    cached: int = -1
    preemptions: int = 0


@dataclass
class Recorder:
    """Records the iterations and requests of an engine core's scheduler as lines of CSV."""

    core: Any
    steps: list[Step] = field(default_factory=list)
    sent: dict[str, Sent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Wrap the scheduler's two calls of a step with a clock."""
        scheduler, in_flight = self.core.scheduler, {}
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def timed_schedule(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            out = schedule(*args, **kwargs)
            in_flight[id(out)] = start
            return out

        def timed_update(out: Any, tokens: Any) -> Any:
            done = time.perf_counter_ns()
            start = in_flight.pop(id(out), done)
            if out.total_num_scheduled_tokens:
                cached = out.scheduled_cached_reqs
                new = [(r.req_id, r.num_computed_tokens) for r in out.scheduled_new_reqs]
                for name, hit in new:
                    if self.sent[name].cached < 0:
                        self.sent[name].cached = hit
                ids, computed = list(cached.req_ids), list(cached.num_computed_tokens)
                self.steps.append(Step(start, done, new, ids, computed, out.num_scheduled_tokens))
            return update(out, tokens)

        scheduler.schedule, scheduler.update_from_output = timed_schedule, timed_update

    def add(self, request: Any, arrival_ns: int) -> None:
        """Pass a request to the scheduler."""
        self.sent[request.request_id] = Sent(arrival_ns, request.num_prompt_tokens)
        self.core.add_request(request)

    def step(self) -> None:
        """Run one step of the engine and record the tokens that it returned."""
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        now = time.perf_counter_ns()
        for group in (outputs or {}).values():
            for out in group.outputs:
                sent = self.sent[out.request_id]
                if out.new_token_ids and not sent.first_ns:
                    sent.first_ns = now
                sent.output += len(out.new_token_ids)
                if out.finish_reason is not None:
                    sent.finish_ns = now
        if not executed:
            time.sleep(0.0002)

    def busy(self) -> bool:
        """True if a step is in flight or a request waits for computation."""
        return bool(self.core.batch_queue) or self.core.scheduler.has_requests()

    def stream(self, requests: list[tuple[float, Any]]) -> int:
        """Send requests at their times (s), open loop, until all are answered; returns the start in ns."""
        gc.collect()
        gc.disable()
        start = time.perf_counter_ns()
        due = [(start + int(at * 1e9), request) for at, request in sorted(requests, key=lambda r: r[0])]
        kept = {request.request_id: request for _, request in due}
        index = 0
        while index < len(due) or self.busy():
            now = time.perf_counter_ns()
            while index < len(due) and due[index][0] <= now:
                self.add(due[index][1], due[index][0])
                index += 1
            if self.busy():
                self.step()
            else:
                time.sleep(max(min(0.0002, (due[index][0] - now) / 1e9), 0))
        for name, request in kept.items():
            self.sent[name].preemptions = request.num_preemptions
        gc.enable()
        return start

    def rows(self, segment: str, start_ns: int) -> list[str]:
        """Return the iterations so far as lines of ``ITERATION_COLUMNS`` and forget them.

        A step lasts from its scheduling, or from the tokens of the step before if these came later, to its
        own tokens.
        """
        lines, before = [], 0
        for step in self.steps:
            prefills, past, chunks, decodes = 0, 0, 0, []
            for name, computed in [*step.new, *zip(step.cached_ids, step.cached_computed, strict=True)]:
                tokens, prompt = step.tokens[name], self.sent[name].prompt
                if computed >= prompt and tokens == 1:
                    decodes.append(computed + 1)
                else:
                    prefills, past, chunks = prefills + tokens, past + computed, chunks + 1
            begin = max(step.scheduled_ns, before)
            before = step.done_ns
            deviation = pstdev(decodes) if len(decodes) > 1 else 0.0
            lines.append(
                f"{segment},{(begin - start_ns) // 1000},{prefills},{chunks},{past},{len(decodes)},"
                f"{sum(decodes)},{deviation:.1f},{max(decodes, default=0)},{(step.done_ns - begin) / 1e6:.4f}"
            )
        self.steps.clear()
        columns = ITERATION_COLUMNS.split(",")[:-1]
        settled = settle([dict(zip(columns, line.split(","), strict=True)) for line in lines])
        return [f"{line},{ms:.4f}" for line, ms in zip(lines, settled, strict=True)]

    def requests(self, segment: str, start_ns: int) -> list[str]:
        """Return the requests so far as lines of ``REQUEST_COLUMNS`` and forget them."""
        lines = [
            f"{segment},{name},{(s.arrival_ns - start_ns) // 1000},{(s.first_ns - start_ns) // 1000},"
            f"{(s.finish_ns - start_ns) // 1000},{s.prompt},{s.cached},{s.output},{s.preemptions}"
            for name, s in self.sent.items()
        ]
        self.sent.clear()
        return lines


def start_engine(model: str, settings: dict[str, Any], executor: Any = None) -> Any:
    """Return a vLLM ``EngineCore`` of the model in a directory, with random weights, on one GPU."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor

    chosen = {"load_format": "dummy", "skip_tokenizer_init": True, "dtype": "bfloat16", **settings}
    config = EngineArgs(model=model, **chosen).create_engine_config()
    return EngineCore(config, executor or Executor.get_class(config), log_stats=False)


def new_request(core: Any, name: str, prompt: list[int], output: int, salt: str | None = None) -> Any:
    """Return a request of exactly so many output tokens, drawn at temperature 1, its blocks already hashed.

    ``salt`` makes its blocks private. Greedy sampling of random weights would give all sequences one token,
    and so one set of experts.
    """
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    sampling = SamplingParams(temperature=1.0, max_tokens=output, ignore_eos=True, detokenize=False)
    given = EngineCoreRequest(name, prompt, None, sampling, None, time.time(), None, salt, None)
    request, _ = core.preprocess_add_request(given)
    return request


def memory_of(core: Any) -> dict[str, Any]:
    """Return the bytes that the engine reported at start-up, and its number of blocks."""
    worker = core.model_executor.driver_worker.worker
    cache = core.vllm_config.cache_config
    return {
        "total_bytes": worker.init_snapshot.total_memory,
        "requested_bytes": int(worker.requested_memory),
        "weights_bytes": int(worker.model_runner.model_memory_usage),
        "activation_bytes": int(worker.peak_activation_memory),
        "non_torch_bytes": int(worker.non_torch_memory),
        "cudagraph_estimate_bytes": int(worker.cudagraph_memory_estimate),
        "kv_bytes": int(worker.available_kv_cache_memory_bytes),
        "kv_tokens": getattr(cache, "kv_cache_size_tokens", None),
        "gpu_blocks": cache.num_gpu_blocks,
        "block_size": cache.block_size,
    }
