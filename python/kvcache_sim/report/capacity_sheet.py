"""KV capacity line by line, as an engine sums it at its start, beside a server's log: ``kvsim models capacity``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.dtypes import DTYPES, FP8_DS_MLA, KV_DTYPES, check_dtype
from kvcache_sim.model.engine_memory import EngineMemory, KvCapacity, stage_layers
from kvcache_sim.model.gpus import GpuSpec, load_gpu
from kvcache_sim.model.kv_capacity import default_engine, kv_capacity
from kvcache_sim.model.kv_groups import kv_layout
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.release_subject import release_subject
from kvcache_sim.model.releases import Release, newest_equal, parse_release, parse_version
from kvcache_sim.model.server_log import ServerLog, read_server_log

_GIB = 2**30
#: Maximum concurrency: until this release the logged tokens by the longest request, then blocks by its blocks.
_BY_BLOCKS = parse_version("0.9.2")
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
    """What a sheet is of; ``options`` are those that are given, by name. "": the model's, a log's, the newest."""

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
        "terms": _terms(found, model, gpu, None if log is None else log.figures),
        "kv_bytes": found.kv_bytes,
        "low_bytes": found.low_bytes,
        "high_bytes": found.high_bytes,
        **_pool(model, gpu, tp, found, length),
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
    whole = usual.__struct_fields__
    stated: dict[str, Any] = {field: settings[name] for name, field in _FIELDS.items() if name in settings}
    for name in stated.keys() & {"max_num_batched_tokens", "max_num_seqs", "pipeline_parallel"}:
        stated[name] = int(stated[name])
    if "max_num_seqs" in whole and "max_num_seqs" not in stated:
        stated["max_num_seqs"] = min(usual.max_num_seqs, stated.get("max_num_batched_tokens", usual.max_num_seqs))
    graphs = settings.get("graphs_gib")
    if graphs is None and log is not None:
        graphs = 0.0 if "enforce_eager" in log.words else log.figures.get("graphs")
    if graphs is not None:
        stated["graphs_bytes"] = int(graphs * _GIB)
    return replace(usual, **stated)


def _terms(
    found: KvCapacity, model: ModelSpec, gpu: GpuSpec, logged: dict[str, float] | None
) -> list[dict[str, Any]]:
    """Return the terms of the sum: name, bytes, rule, and the GiB that a log has for it."""
    engine, rules = found.engine, _rules(found, model, gpu)
    sizes = {
        "to take": found.budget_bytes,
        "weights": -found.weights_bytes,
        "activations": -found.activation_bytes,
        "non-torch": -found.non_torch_bytes,
        "graphs": -found.graphs.size_bytes,
    }
    if engine.release.engine == "sglang":
        sizes = {
            "free before weights": found.found_bytes,
            "outside the share": found.budget_bytes - found.found_bytes,
            "weights": -found.weights_bytes,
        }
    return [
        {
            "name": name,
            "bytes": size,
            "rule": rules[name],
            "logged_gib": None if logged is None else logged.get(name),
        }
        for name, size in sizes.items()
    ]


def _rules(found: KvCapacity, model: ModelSpec, gpu: GpuSpec) -> dict[str, str]:
    """Return each term's rule in words, with its figures."""
    engine, gib = found.engine, found.found_bytes / _GIB
    rows = min(engine.max_num_seqs, engine.max_num_batched_tokens)
    is_sampler = found.sampler_bytes >= found.forward_bytes
    batch = f"forward of {engine.max_num_batched_tokens:,} tokens {found.forward_bytes / _GIB:.2f}"
    warm_up = f"sampler on {rows:,} rows of {model.vocab_size:,} {found.sampler_bytes / _GIB:.2f}"
    kept = 1 - found.budget_bytes / found.found_bytes
    graphs = "not subtracted by this release and runner"
    if found.graphs.size_bytes or engine.graphs_bytes is not None:
        low, high = (size / _GIB for size in (found.graphs.low_bytes, found.graphs.high_bytes))
        graphs = "as given" if low == high else f"estimated by modes and sizes, {low:.2f} to {high:.2f}"
    return {
        "to take": f"{gib:.2f} GiB as CUDA reports × {engine.utilisation:g}",
        "weights": f"{model.weights.feed_forward if not _experts(model) else model.weights.experts}, of one rank",
        "activations": f"{warm_up} (the larger), {batch}" if is_sampler else f"{batch} (the larger), {warm_up}",
        "non-torch": "kernels and handles, of several ranks their buffers",
        "graphs": graphs,
        "free before weights": f"{gpu.usable_bytes / _GIB:.2f} GiB as CUDA reports, less context and NCCL",
        "outside the share": f"{kept:.3f} of it, for activations and graphs",
    }


def _experts(model: ModelSpec) -> bool:
    return any(group.feed_forward is not None and group.feed_forward.experts for group in model.groups)


def _pool(model: ModelSpec, gpu: GpuSpec, tp: int, found: KvCapacity, length: int) -> dict[str, Any]:
    """Return blocks, tokens and concurrency as the release logs them; None where the layout is not known.

    One group of equal layers only: the blocks of a request of several groups are the layout's own.
    """
    release = found.engine.release
    subject = release_subject(model, gpu, tp, release)
    if release.engine == "sglang":
        page = int(release.value("page_size", subject))
        kv = found.kv_bytes
        if "states" in subject.traits:
            kv = int(kv / (1 + float(release.value("mamba_full_memory_ratio"))))
        tokens = max(kv, 0) // max(model.kv_bytes_per_token_per_gpu(tp), 1) // page * page
        return {"block_size": page, "blocks": tokens // page, "tokens": tokens, "concurrency": None}
    size = int(release.value("block_size", subject))
    try:
        layout = kv_layout(model, tp, size)
    except UsageError:
        return {"block_size": size, "blocks": None, "tokens": None, "concurrency": None}
    layers = model.layers
    block_bytes = -(-layout.bytes_per_block * stage_layers(model, found.engine.pipeline_parallel) // layers)
    blocks = max(found.kv_bytes, 0) // block_bytes
    if len(layout.groups) > 1:
        return {"block_size": size, "blocks": blocks, "tokens": None, "concurrency": None}
    share = blocks / -(-length // size)
    tokens = blocks * size
    if str(release.value("logged_tokens")).startswith("concurrency"):
        tokens = int(share * length)
    if release.version < _BY_BLOCKS:
        share = tokens / length
    return {"block_size": size, "blocks": blocks, "tokens": tokens, "concurrency": share}


def capacity_text(sheet: dict[str, Any]) -> str:
    """Return a sheet as lines; with a log its figure and the difference beside each."""
    degrees = sheet["tensor_parallel"], sheet["pipeline_parallel"], sheet["data_parallel"]
    lines = [
        f"{sheet['model']} on {sheet['gpu']}, TP {degrees[0]}"
        + "".join(f", {name} {each}" for name, each in zip(("PP", "DP"), degrees[1:], strict=True) if each > 1)
        + f", {sheet['release']}: GiB on each GPU",
        *([sheet["note"]] if sheet["note"] else []),
    ]
    if read := sheet["read_from_log"]:
        lines.append("read from the log: " + ", ".join(f"{name} {_plain(value)}" for name, value in read.items()))
    lines += [_line(term["name"], term["bytes"] / _GIB, term["logged_gib"], term["rule"]) for term in sheet["terms"]]
    logged, kv = sheet["logged"], sheet["kv_bytes"] / _GIB
    limits = f"{sheet['low_bytes'] / _GIB:.2f} to {sheet['high_bytes'] / _GIB:.2f} in nine of ten logs"
    lines.append(_line("= KV", kv, logged.get("KV"), limits if kv > 0 else f"does not start; {limits}"))
    is_sglang = sheet["release"].startswith("sglang")
    if sheet["tokens"] is None:
        lines.append("tokens of several kinds of layers: not computed here, see kvsim models show")
    else:
        label = "max_total_num_tokens={:,}" if is_sglang else "GPU KV cache size: {:,} tokens"
        lines.append(label.format(sheet["tokens"]) + _beside(sheet["tokens"], logged.get("tokens")))
    if sheet["concurrency"] is not None:
        lines.append(
            f"Maximum concurrency for {sheet['max_model_len']:,} tokens per request: {sheet['concurrency']:.2f}x"
            + _beside(sheet["concurrency"], logged.get("concurrency"))
        )
    return "\n".join(lines)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,g}" if value < 1e6 else f"{value:,.0f}"


def _line(name: str, gib: float, logged: float | None, rule: str) -> str:
    sign = "-" if gib < 0 and not name.startswith("=") else " "
    size = f"{gib:8.2f}" if name.startswith("=") else f"{sign}{abs(gib):7.2f}"
    beside = "" if logged is None else f"  log {logged:.2f} ({abs(gib) - logged if gib >= 0 or sign == '-' else gib - logged:+.2f})"
    return f"{name:<20}{size}{beside}  {rule}"


def _beside(value: float, logged: float | None) -> str:
    if not logged:
        return ""
    return f"  (log {_plain(logged)}: {100 * (value / logged - 1):+.1f} %)"
