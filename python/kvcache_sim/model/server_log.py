"""What an engine's startup log says of its release, its settings and its memory.

vLLM from 0.6 and SGLang from 0.4: each release words a line in its own way, so a figure has several patterns.
A line of several ranks counts once; of their KV the least, as the engine takes it.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value

_N = r"(-?[\d.]+)"
_C = r"([\d,]+)"
#: Settings by name: patterns of a line, the first group is the value.
_SETTINGS = {
    "tensor_parallel": (r"\btensor_parallel_size'?[=:] ?(\d+)", r"\btp_size=(\d+)"),
    "pipeline_parallel": (r"\bpipeline_parallel_size'?[=:] ?(\d+)", r"\bpp_size=(\d+)"),
    "data_parallel": (r"\bdata_parallel_size'?[=:] ?(\d+)", r"\bdp_size=(\d+)"),
    "gpu_memory_utilization": (
        rf"Desired GPU memory utilization is \({_N},",
        rf"'gpu_memory_utilization': {_N}",
        rf"gpu_memory_utilization \({_N}\)",
    ),
    "mem_fraction_static": (rf"\bmem_fraction_static={_N}",),
    "max_num_batched_tokens": (
        r"'max_num_batched_tokens': (\d+)",
        r"enabled with max_num_batched_tokens=(\d+)",
        r"\bchunked_prefill_size=(\d+)",
    ),
    "max_num_seqs": (r"'max_num_seqs': (\d+)",),
    "max_model_len": (r"\bmax_seq_len=(\d+)", r"Using max model len (\d+)", r"\bcontext_len=(\d+)"),
    "kv_dtype": (r"\bkv_cache_dtype='?(fp8\w*|bfloat16|float16)",),
    "enforce_eager": (r"\benforce_eager=(True)", r"\bdisable_cuda_graph=(True)"),
}
#: Figures in GiB or as counts by name: patterns of a line.
_FIGURES = {
    "total": (rf"Free memory on device \([\d.]+/{_N} GiB\)", rf"total_gpu_memory \({_N}GiB\)"),
    "to take": (rf"Desired GPU memory utilization is \([\d.]+, {_N} GiB\)",),
    "weights": (
        rf"Loading model weights took {_N} G",
        rf"Model loading took {_N} G",
        rf"model weights take {_N}GiB",
        rf"Load weight end.* mem usage={_N} GB",
    ),
    "consumed": (rf"usage is {_N} GiB for consumed memory",),
    "activations": (
        rf"{_N} GiB for peak activation",
        rf"torch peak memory increase: {_N}GiB",
        rf"PyTorch activation peak memory takes {_N}GiB",
    ),
    "non-torch": (
        rf"{_N} GiB for non-torch",
        rf"non-torch forward increase memory: {_N}GiB",
        rf"non_torch_memory takes {_N}GiB",
    ),
    "graphs": (rf"Estimated CUDA graph memory: {_N} GiB",),
    "captured": (rf"Graph capturing finished in \d+ secs, took {_N} GiB",),
    "free before weights": (rf"Load weight begin\. avail mem={_N} GB",),
    "free after weights": (rf"Load weight end.* avail mem={_N} GB",),
    "KV": (rf"Available KV cache memory: {_N} GiB", rf"reserved for KV Cache is {_N}GiB"),
    "keys": (rf"\bK size: {_N} GB",),
    "values": (rf"\bV size: {_N} GB",),
    "KV size": (rf"#tokens: \d+, KV size: {_N} GB",),
    "tokens": (rf"GPU KV cache size: {_C} tokens", r"\bmax_total_num_tokens=(\d+)", r"allocated.*#tokens: (\d+)"),
    "blocks": (rf"# (?:GPU|CUDA) blocks: {_C}",),
    "concurrency": (rf"Maximum concurrency for [\d,]+ tokens per request: {_N}x",),
}
_RELEASES = (
    ("vllm", r"LLM engine \(v(\d+\.\d+\.\d+)"),
    ("vllm", r"vLLM API server version (\d+\.\d+\.\d+)"),
    ("vllm", r"█ +version (\d+\.\d+\.\d+)"),
    ("sglang", r"\bsglang(?: version|==)[ :]*(\d+\.\d+\.\d+(?:\.post\d+)?)"),
)
#: What only SGLang writes.
_SGLANG = re.compile(r"ServerArgs\(|Load weight (?:begin|end)|max_total_num_tokens=")


class ServerLog(Value):
    """A startup log: ``release`` such as ``vllm@0.19.0`` ("": not said), settings and figures by name.

    Memory is in GiB (what SGLang calls GB). ``activations`` are without an estimate of graphs.
    """

    engine: str
    release: str
    settings: dict[str, float]
    words: dict[str, str]
    figures: dict[str, float]


def read_server_log(path: Path) -> ServerLog:
    """Return what a server's log says; UsageError for a file that is no startup log of a known engine."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError("log not readable", where=str(path), got=error.strerror or "") from None
    return parse_server_log(text, str(path))


def parse_server_log(text: str, where: str = "") -> ServerLog:
    """Return what the text of a server's log says, as ``read_server_log``."""
    figures = {name: found for name, each in _FIGURES.items() if (found := _figure(name, each, text)) is not None}
    named = [(engine, match[1]) for engine, each in _RELEASES if (match := re.search(each, text))]
    if not figures or not (figures.keys() & {"KV", "tokens", "weights", "KV size", "keys"}):
        expected = "lines such as 'Model loading took 15.0 GiB' or 'Load weight end. … avail mem=61.0 GB'"
        raise UsageError("no startup log of vLLM or SGLang", where=where, expected=expected)
    engine = named[0][0] if named else "sglang" if _SGLANG.search(text) else "vllm"
    words = {name: found for name, each in _SETTINGS.items() if (found := _last(each, text)) is not None}
    numbers = {name: float(word) for name, word in words.items() if re.fullmatch(r"[\d.]+", word)}
    return ServerLog(
        engine,
        f"{engine}@{named[0][1]}" if named else "",
        numbers,
        {name: word for name, word in words.items() if name not in numbers},
        _completed(figures),
    )


def _completed(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures with the parts that a log gives as sums: SGLang's KV, non-torch beside weights."""
    found = dict(figures)
    if "keys" in found and "values" in found:
        found.setdefault("KV", round(found.pop("keys") + found.pop("values"), 2))
    if "KV size" in found:
        found.setdefault("KV", found.pop("KV size"))
    if "consumed" in found and "weights" in found:
        # These releases print the estimate of graphs as a part of the activations.
        found.setdefault("non-torch", round(found["consumed"] - found["weights"], 2))
        if {"activations", "graphs"} <= found.keys():
            found["activations"] = round(found["activations"] - found["graphs"], 2)
    return found


def _last(patterns: tuple[str, ...], text: str) -> str | None:
    """Return the value of the first pattern that occurs, in its last line."""
    for pattern in patterns:
        if found := re.findall(pattern, text):
            return str(found[-1])
    return None


def _figure(name: str, patterns: tuple[str, ...], text: str) -> float | None:
    for pattern in patterns:
        if found := [float(each.replace(",", "")) for each in re.findall(pattern, text)]:
            return min(found) if name in ("KV", "tokens") else found[0]
    return None
