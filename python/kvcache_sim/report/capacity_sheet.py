"""KV capacity line by line, as an engine sums it, and as its log says: ``kvsim models capacity``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.dtypes import DTYPES, FP8_DS_MLA, KV_DTYPES, check_dtype
from kvcache_sim.model.engine_memory import EngineMemory, KvCapacity, rank_weights_bytes, stage_layers
from kvcache_sim.model.gpus import GpuSpec, load_gpu
from kvcache_sim.model.kv_capacity import default_engine, kv_capacity
from kvcache_sim.model.kv_concurrency import Demand, concurrency, logged_tokens
from kvcache_sim.model.kv_groups import kv_layout
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Release, Subject, newest_equal, parse_release
from kvcache_sim.model.server_log import ServerLog, read_server_log

_GIB = 2**30
#: An option's name → the field of an engine that it sets.
_FIELDS = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "pipeline_parallel": "pipeline_parallel",
    "gpu_memory_utilization": "utilisation",
    "mem_fraction_static": "mem_fraction",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
}
#: Options of one engine alone.
_OWN = {
    "vllm": ("gpu_memory_utilization", "kv_cache_memory_bytes", "graphs_gib", "max_num_seqs"),
    "sglang": ("mem_fraction_static",),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a sheet: ``options`` that are given, by name; "": the model's, a log's, the newest."""

    model: str
    gpu: str
    options: dict[str, float]
    release: str = ""
    kv_dtype: str = ""
    weights: str = ""
    log: str = ""


def capacity_sheet(asked: Asked) -> dict[str, Any]:
    """Return the sum, its terms with their rules, and the tokens; with a log also its figures.

    An option counts before the log's setting, and that before the release's default. Raises UsageError for
    unknown names, another engine's option, a file that is no log, and weights that do not fit.
    """
    log = read_server_log(Path(asked.log)) if asked.log else None
    read = {} if log is None else {**log.settings}
    if log is not None and log.engine == "sglang":
        read.pop("data_parallel", None)  # ranks of attention share the GPUs of the TP degree
    release, gpu, model = _release(asked, log), load_gpu(asked.gpu), _model(asked, log)
    settings = read | asked.options
    for name in _OWN["sglang" if release.engine == "vllm" else "vllm"]:
        if name in asked.options:
            raise UsageError(f"not a setting of {release.engine}", where="--" + name.replace("_", "-"))
    tp, pp, dp = (
        int(settings.get(name, 1)) for name in ("tensor_parallel", "pipeline_parallel", "data_parallel")
    )
    engine = _engine(default_engine(gpu, release, model, tp), settings, log)
    found = kv_capacity(model, gpu, tp, engine, dp)
    subject = release_subject(model, gpu, tp, release)
    length = int(settings.get("max_model_len", model.context.default_tokens))
    return {
        "model": model.name,
        "gpu": gpu.name,
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "data_parallel": dp,
        "release": str(release),
        "note": release.note,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": engine.max_num_seqs,
        "max_model_len": length,
        "read_from_log": read | ({} if log is None else dict(log.words)),
        "terms": _terms(found, _rules(found, model, gpu, subject), {} if log is None else log.figures),
        "kv_bytes": found.kv_bytes,
        "low_bytes": found.low_bytes,
        "high_bytes": found.high_bytes,
        **_pool(model, tp, found, subject, length),
        "logged": {} if log is None else log.figures,
    }


def _release(asked: Asked, log: ServerLog | None) -> Release:
    named = asked.release or (log.release if log else "")
    return parse_release(named) if named else newest_equal(log.engine if log else "vllm")


def _model(asked: Asked, log: ServerLog | None) -> ModelSpec:
    weights = check_dtype(asked.weights, "--weights", DTYPES) if asked.weights else ""
    kv = check_dtype(asked.kv_dtype, "--kv-dtype", KV_DTYPES) if asked.kv_dtype else ""
    logged = "" if log is None else log.words.get("kv_dtype", "")
    if not kv and logged.startswith("fp8"):
        kv = FP8_DS_MLA if logged == FP8_DS_MLA else "fp8"
    return load_model(asked.model).with_dtypes(weights, kv)


def _engine(usual: EngineMemory, settings: dict[str, float], log: ServerLog | None) -> EngineMemory:
    """Return an engine with the settings that are stated; a log's estimate of graphs, where it stands."""
    stated: dict[str, Any] = {field: settings[name] for name, field in _FIELDS.items() if name in settings}
    for name in stated.keys() & {"max_num_batched_tokens", "max_num_seqs", "pipeline_parallel"}:
        stated[name] = int(stated[name])
    tokens = stated.get("max_num_batched_tokens", usual.max_num_batched_tokens)
    stated.setdefault("max_num_seqs", min(usual.max_num_seqs, tokens))
    graphs = settings.get("graphs_gib")
    if graphs is None and log is not None:
        graphs = 0.0 if "enforce_eager" in log.words else log.figures.get("graphs")
    if graphs is not None:
        stated["graphs_bytes"] = int(graphs * _GIB)
    return replace(usual, **stated)


def _terms(found: KvCapacity, rules: dict[str, str], logged: dict[str, float]) -> list[dict[str, Any]]:
    """Return the terms of the sum: name, bytes, rule, and the GiB that a log has for it."""
    sizes = {
        "to take": found.budget_bytes,
        "weights": -found.weights_bytes,
        "activations": -found.activation_bytes,
        "non-torch": -found.non_torch_bytes,
        "graphs": -found.graphs.size_bytes,
    }
    if found.engine.release.engine == "sglang":
        sizes = {
            "free before weights": found.found_bytes,
            "outside the share": found.budget_bytes - found.found_bytes,
            "weights": -found.weights_bytes,
        }
    return [
        {"name": name, "bytes": size, "rule": rules[name], "logged_gib": logged.get(name) if size else None}
        for name, size in sizes.items()
    ]


def _rules(found: KvCapacity, model: ModelSpec, gpu: GpuSpec, subject: Subject) -> dict[str, str]:
    """Return each term's rule in words, with its figures."""
    engine, graphs = found.engine, found.graphs
    rows = min(engine.max_num_seqs, engine.max_num_batched_tokens)
    sampler = f"sampler of {rows:,} rows × {model.vocab_size:,} × {found.logit_bytes:g} bytes"
    peaks = sorted(
        [
            (found.forward_bytes, f"forward of {engine.max_num_batched_tokens:,} tokens"),
            (found.sampler_bytes, sampler),
        ],
        reverse=True,
    )
    by_graphs = f"by modes and sizes, {graphs.low_bytes / _GIB:.2f} to {graphs.high_bytes / _GIB:.2f}"
    if engine.graphs_bytes is not None:
        by_graphs = "estimate as given"
    if engine.release.engine == "vllm" and engine.release.value("graphs", subject) != "estimate":
        by_graphs = "not subtracted by this release and runner"
    return {
        "to take": f"{found.found_bytes / _GIB:.2f} GiB as CUDA reports × {engine.utilisation:g}",
        "weights": f"of {rank_weights_bytes(model, 1, 1, 1) / _GIB:.2f} in all",
        "activations": "; less than that ".join(f"{size / _GIB:.2f} {name}" for size, name in peaks),
        "non-torch": "handles and kernels, of several ranks also their buffers",
        "graphs": by_graphs,
        "free before weights": f"{gpu.usable_bytes / _GIB:.2f} GiB as CUDA reports, less context and NCCL",
        "outside the share": f"{1 - found.budget_bytes / found.found_bytes:.3f} of it: activations, graphs",
    }


def _pool(model: ModelSpec, tp: int, found: KvCapacity, subject: Subject, length: int) -> dict[str, Any]:
    """Return blocks, tokens and concurrency as the release logs them; None where no layout is known."""
    release, kv, stages = found.engine.release, max(found.kv_bytes, 0), found.engine.pipeline_parallel
    pool: dict[str, Any] = {"block_size": 0, "blocks": None, "tokens": None, "concurrency": None}
    if release.engine == "sglang":
        page = int(release.value("page_size", subject))
        if "states" in subject.traits:
            kv = int(kv / (1 + float(release.value("mamba_full_memory_ratio"))))
        blocks = kv // max(model.kv_bytes_per_token_per_gpu(tp), 1) // page
        return pool | {"block_size": page, "blocks": blocks, "tokens": blocks * page}
    size = pool["block_size"] = int(release.value("block_size", subject))
    try:
        layout = kv_layout(model, tp, size, release.version)
    except UsageError:
        return pool
    blocks = kv // -(-layout.bytes_per_block * stage_layers(model, stages) // model.layers)
    in_flight = stages + 1 if stages > 1 and "V2" in subject.traits else 2
    caches = bool(release.value("enable_prefix_caching", subject))
    demand = Demand(release.version, found.engine.max_num_batched_tokens, in_flight, caches)
    return pool | {
        "blocks": blocks,
        "tokens": logged_tokens(layout, blocks, length, demand),
        "concurrency": concurrency(layout, blocks, length, demand),
    }


def capacity_text(sheet: dict[str, Any]) -> str:
    """Return a sheet as lines; with a log each has its figure and the difference."""
    degrees = sheet["tensor_parallel"], sheet["pipeline_parallel"], sheet["data_parallel"]
    lines = [
        f"{sheet['model']} on {sheet['gpu']}, TP {degrees[0]}"
        + "".join(
            f", {name} {each}" for name, each in zip(("PP", "DP"), degrees[1:], strict=True) if each > 1
        )
        + f", {sheet['release']}: GiB on each GPU",
        *([sheet["note"]] if sheet["note"] else []),
    ]
    if read := sheet["read_from_log"]:
        lines.append(
            "read from the log: " + ", ".join(f"{name} {_plain(value)}" for name, value in read.items())
        )
    lines += [
        _line(term["name"], term["bytes"] / _GIB, term["logged_gib"], term["rule"]) for term in sheet["terms"]
    ]
    logged, kv = sheet["logged"], sheet["kv_bytes"] / _GIB
    limits = f"{sheet['low_bytes'] / _GIB:.2f} to {sheet['high_bytes'] / _GIB:.2f} in nine of ten logs"
    lines.append(_line("= KV", kv, logged.get("KV"), limits if kv > 0 else f"does not start; {limits}"))
    is_sglang = sheet["release"].startswith("sglang")
    if sheet["tokens"] is None:
        lines.append("tokens: not known, as vLLM's layout of these layers is not")
    else:
        label = "max_total_num_tokens={:,}" if is_sglang else "GPU KV cache size: {:,} tokens"
        lines.append(label.format(sheet["tokens"]) + _and_logged(sheet["tokens"], logged.get("tokens")))
    if sheet["concurrency"] is not None:
        share = f"Maximum concurrency for {sheet['max_model_len']:,} tokens per request: "
        share += f"{sheet['concurrency']:.2f}x" + (", so it refuses" if sheet["concurrency"] < 1 else "")
        lines.append(share + _and_logged(sheet["concurrency"], logged.get("concurrency")))
    return "\n".join(lines)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _line(name: str, gib: float, logged: float | None, rule: str) -> str:
    """Return a term: its sign, its GiB, a log's with the difference, its rule."""
    is_term = not name.startswith("=")
    sign, shown = ("-", -gib) if is_term and gib < 0 else (" ", gib)
    beside = "" if logged is None else f"  log {logged:.2f} ({shown - logged:+.2f})"
    return f"{name:<20}{sign}{shown:7.2f}{beside}  {rule}"


def _and_logged(value: float, logged: float | None) -> str:
    if not logged:
        return ""
    return f"  (log {_plain(logged)}: {100 * (value / logged - 1):+.1f} %)"
