"""The names of a launch line: its model in the catalogue, the formats that a name states, and its GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import read_entry
from kvcache_sim.model.gpus import load_gpu, spelled_gpus
from kvcache_sim.model.model_file import load_model, maker_id, model_names, names_model_file
from kvcache_sim.model.templates import draft_model

#: The GPU of a line that names none.
ASSUMED_GPU = "h100"
#: Parts of checkpoints' names → format; of several the last one counts (``GPTQ-Int8``).
_FORMATS = {
    **{name: name for name in ("bf16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int8")},
    **dict.fromkeys(("fp4", "nvfp4a16"), "nvfp4"),
    **dict.fromkeys(("w8a8", "w8a16", "8bit"), "int8"),
    **dict.fromkeys(("awq", "gptq", "int4", "4bit", "w4a16", "w4afp8", "bnb"), "int4-g128"),
}
_FORMAT = re.compile(rf"(?:^|(?<=-))({'|'.join(_FORMATS)})(?=-|$)")
#: Parts that different architectures share, in the order of their removal: formats and their details; then
#: tuning, a release's date, and a maker.
_COMMON = (
    re.compile(rf"-(?:{'|'.join(_FORMATS)}|quantized|dynamic|block|g128|marlin|gguf|dummy|hf)(?=-|$)"),
    re.compile(r"^(?:meta|nvidia|unsloth)-|-(?:instruct|chat|it|pt|base|thinking|\d{4})(?=-|$)"),
)
#: Billions of weights in a name: ``7b``, ``1.5b``, ``8x7b``.
_SIZE = re.compile(r"(?:^|-)(?:(\d+)x)?(\d+(?:\.\d+)?)b(?=-|$)")


class NamedGpu(Value):
    """A GPU, and the comment that says where its name comes from."""

    name: str
    comment: str


def plain_name(name: str) -> str:
    """Return the last part of a name or path in lower case, with dashes between its words.

    ``models--Owner--Name/snapshots/HASH`` is a model in the Hub's cache.
    """
    cached = re.search(r"models--[^/]+?--([^/]+)", name)
    last = cached[1] if cached else name.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9.]+", "-", re.sub(r"(?<=\d)___(?=\d)", ".", last.lower())).strip("-")


def dtype_of_name(name: str) -> str:
    """Return the format that a checkpoint's name states, such as ``Qwen3-32B-FP8``; "" if it states none."""
    stated = _FORMAT.findall(next(_shortened(name)))
    return _FORMATS[stated[-1]] if stated else ""


def kv_dtype_of_name(name: str) -> str:
    """Return the KV format that a quantized copy's configuration states; "" if it is not known to."""
    known = _known(name)
    copies = read_entry("models", "model", known).get("fp8_kv", ()) if known in model_names() else ()
    return "fp8" if plain_name(name) in map(plain_name, copies) else ""


def _shortened(name: str) -> Iterator[str]:
    """Yield a plain name, then without its format, then without its tuning; dots are dashes."""
    short = plain_name(name).replace(".", "-")
    yield short
    for part in _COMMON:
        short = part.sub("", short)
        yield short


@cache
def _spelled() -> dict[str, str]:
    """Return the catalogue's models by what they are called: their file's name, their makers' and others."""
    names = {
        known: [list(_shortened(one)) for one in (known, maker_id(known), *more.get("names", ())) if one]
        for known, more in ((known, read_entry("models", "model", known)) for known in model_names())
    }
    found: dict[str, str] = {}
    for stage in range(1 + len(_COMMON)):
        for known in sorted(names, key=len):
            for one in names[known]:
                found.setdefault(one[stage], known)
    return found


def model_of(name: str) -> str:
    """Return the catalog's name of a model: ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``.

    A model file or a directory with a ``config.json`` stays; for a file in such a directory
    it is the directory. Raises UsageError with the nearest names, or with the command that drafts a model.
    """
    folder = Path(name).parent if Path(name).is_file() else Path(name)
    if name.endswith((".toml", ".json")) or (folder != Path() and (folder / "config.json").is_file()):
        return name if name.endswith((".toml", ".json")) else str(folder)
    spelled = _spelled()
    for short in _shortened(name):
        if short in spelled:
            return spelled[short]
    near = [spelled[one] for one in close_matches(short, list(spelled), n=3)]
    hint = f"--model NAME: {' or '.join(dict.fromkeys(near))}?" if near else "--model NAME"
    hint += ", or a directory with its config.json"
    if draft_of(name):
        new = plain_name(name)
        hint = f"a draft: kvsim models new {new} --from {new}, then --model {new}.toml; {hint}"
    raise UsageError("a model that the catalogue does not have", where="--from", got=repr(name), hint=hint)


def draft_of(name: str) -> str:
    """Return a model file to fill in for a name that states size and format; "" for any other name."""
    size, dtype = _SIZE.search(plain_name(name)), dtype_of_name(name)
    if size is None or not dtype or names_model_file(name):
        return ""
    return draft_model(name, round(int(size[1] or 1) * float(size[2]) * 1e9), dtype)


def about_model(named: str, written: str, given: str) -> list[str]:
    """Return comments on the model of a line that writes ``written``; ``given`` is ``--model``."""
    source = load_model(named).source
    stands = [f"{given} stands for {written} (--model)"] if given and given != _known(written) else []
    return stands + ([f"figures of {named}: {source}"] if "believed" in source else [])


def _known(name: str) -> str:
    try:
        return model_of(name)
    except UsageError:
        return ""


def gpu_of(text: str, given: str) -> NamedGpu:
    """Return the GPU that is given, else the one that a line's text names, else the default."""
    if given:
        name = given if given.endswith(".toml") else load_gpu(given).name
        return NamedGpu(name, f"GPU: {name} (--gpu)")
    named = spelled_gpus(text)
    if len(named) == 1:
        return NamedGpu(named[0], f"GPU: {named[0]}, as the line's text says; another: --gpu NAME")
    return NamedGpu(ASSUMED_GPU, f"The GPU is not in the line, {ASSUMED_GPU} is assumed; another: --gpu NAME")
