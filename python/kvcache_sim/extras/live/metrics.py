"""``/metrics`` under vLLM's names: counts, gauges and histograms of the simulated machines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.serving.router.report import published_by
from kvcache_sim.serving.sequence import ClosedRequest


class GapHistogram(Collector):
    """Counts by machine; ``prometheus_client``'s own histogram takes twenty times as long per count."""

    def __init__(self, name: str, text: str, model: str, machines: int, buckets_s: Sequence[float]) -> None:
        self._name, self._text, self._model = name, text, model
        self._edges_ns = [int(edge * NS_PER_S) for edge in buckets_s]
        self._names = [*map(str, map(float, buckets_s)), "+Inf"]
        self._counts = [[0] * len(self._names) for _ in range(machines)]
        self._sums_ns = [0] * machines

    def add(self, machine: int, gap_ns: int, times: int) -> None:
        """Count a time since the previous token, ``times`` times."""
        self._counts[machine][bisect_left(self._edges_ns, gap_ns)] += times
        self._sums_ns[machine] += gap_ns * times

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the current histogram."""
        family = HistogramMetricFamily(self._name, self._text, labels=["model_name", "engine"])
        for machine, counts in enumerate(self._counts):
            upto, buckets = 0, []
            for name, count in zip(self._names, counts, strict=True):
                upto += count
                buckets.append((name, upto))
            family.add_metric([self._model, str(machine)], buckets, self._sums_ns[machine] / NS_PER_S)
        yield family


#: vLLM 0.33.0, ``vllm/v1/metrics/buckets.py``.
_TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
_TTFT_S = (*_TTFT, 640, 2560)
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_SPAN_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_NUMBER = (1, 2, 5, 10, 20)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_LABELS = ("model_name", "engine")

_HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("time to first token", _TTFT_S),
    "request_time_per_output_token_seconds": ("mean time of a token after the first", _TOKEN_S),
    "e2e_request_latency_seconds": ("arrival to last token", _SPAN_S),
    "request_queue_time_seconds": ("waiting for the first schedule", _SPAN_S),
    "request_inference_time_seconds": ("first schedule to last token", _SPAN_S),
    "request_prefill_time_seconds": ("first schedule to first token", _SPAN_S),
    "request_decode_time_seconds": ("first to last token", _SPAN_S),
    "request_params_n": ("n of a request", _NUMBER),
    "request_num_preemptions": ("preemptions of a request", _PREEMPTIONS),
}
_TOKEN_HISTOGRAMS = {
    "request_prompt_tokens": "prompt tokens",
    "request_generation_tokens": "generated tokens",
    "request_max_num_generation_tokens": "most tokens asked for",
    "request_params_max_tokens": "max_tokens of a request",
    "request_prefill_kv_computed_tokens": "prompt tokens computed",
}
_COUNTERS = {
    "prefix_cache_queries": "prompt tokens looked up",
    "prefix_cache_hits": "prompt tokens found on the GPU",
    "external_prefix_cache_queries": "prompt tokens looked up beyond the GPU",
    "external_prefix_cache_hits": "prompt tokens found on lower tiers",
    "num_preemptions": "preemptions",
    "prompt_tokens": "prompt tokens",
    "prompt_tokens_cached": "prompt tokens that were cached",
    "generation_tokens": "generated tokens",
}
_GAUGES = {
    "num_requests_running": "requests in the batch, at the end of the last step",
    "num_requests_waiting": "requests that the last schedule left waiting",
    "kv_cache_usage_perc": "share of the GPU's blocks in use, 0 to 1",
}
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")


@dataclass(frozen=True, slots=True)
class _OfMachine:
    """The metrics of one machine with labels resolved once: resolving costs as much as a count."""

    histograms: dict[str, Histogram]
    counters: dict[str, Counter]
    success: dict[str, Counter]
    sources: dict[str, Counter]


class Metrics:
    """Counts of the fleet's requests by machine, in Prometheus's format."""

    def __init__(self, fleet: Fleet, model: str, max_model_len: int) -> None:
        self._fleet, self._model = fleet, model
        self._published = published_by(fleet.simulation.replicas)
        self._registry = CollectorRegistry()
        tokens = _one_two_five(max_model_len)
        wanted = {**_HISTOGRAMS, **{name: (text, tokens) for name, text in _TOKEN_HISTOGRAMS.items()}}
        self._histograms = {
            name: Histogram(f"vllm:{name}", text, _LABELS, registry=self._registry, buckets=list(buckets))
            for name, (text, buckets) in wanted.items()
        }
        self._counters = {
            name: Counter(f"vllm:{name}", text, _LABELS, registry=self._registry)
            for name, text in _COUNTERS.items()
        }
        success, source = (*_LABELS, "finished_reason"), (*_LABELS, "source")
        self._success = Counter("vllm:request_success", "requests by end", success, registry=self._registry)
        text = "prompt tokens by where they came from"
        self._source = Counter("vllm:prompt_tokens_by_source", text, source, registry=self._registry)
        self._gauges = {
            name: Gauge(f"vllm:{name}", text, _LABELS, registry=self._registry)
            for name, text in _GAUGES.items()
        }
        name, machines = "vllm:inter_token_latency_seconds", len(fleet.simulation.replicas)
        self.gaps = GapHistogram(name, "time between two tokens", model, machines, _TOKEN_S)
        self._registry.register(self.gaps)
        self._config(fleet)
        self._machines = [self._of_machine(replica.machine) for replica in fleet.simulation.replicas]

    def _of_machine(self, machine: int) -> _OfMachine:
        labels = (self._model, str(machine))
        return _OfMachine(
            {name: metric.labels(*labels) for name, metric in self._histograms.items()},
            {name: metric.labels(*labels) for name, metric in self._counters.items()},
            {reason: self._success.labels(*labels, reason) for reason in ("stop", "length", "abort")},
            {source: self._source.labels(*labels, source) for source in _SOURCES},
        )

    def _config(self, fleet: Fleet) -> None:
        labels = ("block_size", "num_gpu_blocks", "engine")
        info = Gauge("vllm:cache_config_info", "the cache's settings", labels, registry=self._registry)
        for replica in fleet.simulation.replicas:
            blocks = replica.store.occupancy(COMPUTE).capacity_blocks
            info.labels(str(replica.cache.block_size_tokens), str(blocks), str(replica.machine)).set(1)

    # -- notifications of the fleet

    def arrived(self, ticket: Ticket, numbers: Sequence[int]) -> None:
        """Do nothing: a request is counted when it ends."""

    def on_abort(self, ticket: Ticket, at_ns: int) -> None:
        """Do nothing: a request is counted when it has left."""

    def advanced(self, now_ns: int) -> None:
        """Do nothing: gauges are computed when they are read."""

    def cleared(self, now_ns: int) -> None:
        """Do nothing: counts stay."""

    def closed(self, ticket: Ticket, sequence: ClosedRequest, now_ns: int) -> None:
        """Count a request that has left."""
        if ticket.turned_away:
            return
        counts_of = self._machines[max(sequence.machine, 0)]
        last_ns = ticket.last_ns if ticket.last_ns >= 0 else None
        counts_of.success["abort" if ticket.aborted else ticket.finish_reason].inc()
        cached, here = ticket.cached_tokens, sequence.cached_tokens_by_source[COMPUTE]
        counts = {
            "prefix_cache_queries": ticket.prompt_tokens,
            "prefix_cache_hits": here,
            "external_prefix_cache_queries": ticket.prompt_tokens - here,
            "external_prefix_cache_hits": cached - here,
            "num_preemptions": sequence.preemptions,
            "prompt_tokens": ticket.prompt_tokens,
            "prompt_tokens_cached": cached,
            "generation_tokens": ticket.tokens_out,
        }
        for name, count in counts.items():
            if count > 0:
                counts_of.counters[name].inc(count)
        sources = (ticket.prompt_tokens - cached, here, cached - here)
        for source, count in zip(_SOURCES, sources, strict=True):
            if count > 0:
                counts_of.sources[source].inc(count)
        for name, value in self._observed(ticket, sequence, last_ns).items():
            counts_of.histograms[name].observe(value)

    def _observed(self, ticket: Ticket, s: ClosedRequest, last_ns: int | None) -> dict[str, float]:
        seen: dict[str, float] = {
            "request_prompt_tokens": ticket.prompt_tokens,
            "request_generation_tokens": ticket.tokens_out,
            "request_max_num_generation_tokens": ticket.output_tokens,
            "request_params_max_tokens": ticket.output_tokens,
            "request_params_n": 1,
            "request_prefill_kv_computed_tokens": ticket.prompt_tokens - ticket.cached_tokens,
            "request_num_preemptions": s.preemptions,
        }
        if s.first_token_ns < 0 or last_ns is None:
            return seen
        spans = {
            "time_to_first_token_seconds": s.first_token_ns - s.arrival_ns,
            "e2e_request_latency_seconds": last_ns - s.arrival_ns,
            "request_queue_time_seconds": s.queue_ns,
            "request_inference_time_seconds": last_ns - s.admitted_ns,
            "request_prefill_time_seconds": s.first_token_ns - s.admitted_ns,
            "request_decode_time_seconds": last_ns - s.first_token_ns,
        }
        if ticket.tokens_out > 1:
            per_token = (last_ns - s.first_token_ns) // (ticket.tokens_out - 1)
            spans["request_time_per_output_token_seconds"] = per_token
        return {**seen, **{name: span / NS_PER_S for name, span in spans.items()}}

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        seen = self._published()
        gauges: dict[str, Sequence[float]] = {
            "num_requests_running": seen.running,
            "num_requests_waiting": seen.waiting,
            "kv_cache_usage_perc": seen.kv_use,
        }
        for name, values in gauges.items():
            for replica, value in zip(self._fleet.simulation.replicas, values, strict=True):
                self._gauges[name].labels(self._model, str(replica.machine)).set(value)
        return generate_latest(self._registry)


def _one_two_five(most: int) -> list[float]:
    """Return 1, 2, 5, 10, 20, 50, … up to ``most``."""
    found, power = [], 1
    while power <= most:
        found += [factor * power for factor in (1, 2, 5) if factor * power <= most]
        power *= 10
    return [float(bucket) for bucket in found]
