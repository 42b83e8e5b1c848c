"""A Hugging Face ``config.json`` read as a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.catalog import unknown_name
from kvcache_sim.model.hugging_face.architectures import (
    ARCHITECTURES,
    USUAL,
    Architecture,
    architecture_key,
)
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.hugging_face.quantization import kv_dtype, plain_dtype, weight_dtypes
from kvcache_sim.model.layer_group import grouped
from kvcache_sim.model.model_spec import ModelSpec, context_length

#: Fields in which multimodal models keep their language model.
_NESTED = ("text_config", "language_config", "llm_config")


def unknown_architecture(path: Path) -> str:
    """Return the name of a configuration's architecture if it is unknown, else an empty text."""
    values = _read(path)
    names = [name for source in (_text(values), values) for name in _names(source)]
    return "" if any(architecture_key(name) in ARCHITECTURES for name in names) else " ".join(names[:1])


def read_configuration(path: Path, draft: bool = False) -> ModelSpec:
    """Return the model of a ``config.json``, with its formats and its sampling, if next to it.

    The name is that of the file's folder, or of the file if it is not ``config.json``. ``draft``: read an
    unknown architecture by the usual field names. Raises UsageError in one line for a file that is not a
    configuration, an unknown architecture, or a missing field.
    """
    values = _read(path)
    quantization: Mapping[str, Any] = {}
    quantization_path = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
    if path.name.endswith("config.json") and quantization_path.is_file():
        quantization = _read(quantization_path).get("quantization") or {}
    name = path.absolute().parent.name if path.name == "config.json" else path.stem
    found = model_of(values, name, str(path), quantization, draft)
    generation = path.with_name("generation_config.json")
    if path.name != "config.json" or not generation.is_file():
        return found
    return replace(found, sampling=_sampling(_read(generation)))


def _sampling(generation: Mapping[str, Any]) -> str:
    """Return the filters that a ``generation_config.json`` asks for, as in ``ModelSpec.sampling``."""
    top_k, top_p = generation.get("top_k"), generation.get("top_p")
    asks_k = isinstance(top_k, int) and top_k > 0
    asks_p = isinstance(top_p, (int, float)) and 0 < top_p < 1
    return " ".join(["top-k"] * asks_k + ["top-p"] * asks_p)


def model_of(
    values: Mapping[str, Any],
    name: str,
    where: str,
    quantization: Mapping[str, Any] | None = None,
    draft: bool = False,
) -> ModelSpec:
    """Return the model that a configuration's fields describe; raises as ``read_configuration``."""
    nested, text = _nested(values), _text(values)
    architecture = USUAL if draft else _architecture(values, text, where)
    fields = Fields({**dict(architecture.defaults), **_given(text)}, f"{where} {nested}" if nested else where)
    stated = {**(values.get("quantization_config") or text.get("quantization_config") or {})}
    stated = {
        **dict(quantization or {}),
        **{key: value for key, value in stated.items() if value is not None},
    }
    layers = list(zip(architecture.attention(fields), architecture.feed_forward(fields), strict=True))
    if not any(attention for attention, _ in layers):
        raise UsageError("no layer with attention", where=where)
    plain = plain_dtype({**_given(values), **_given(text)}, where)
    dtypes = weight_dtypes(stated, plain, where)
    if fields.values.get("expert_dtype") == "fp4" and dtypes.experts == "fp8":
        dtypes = type(dtypes)(dtypes.attention, dtypes.feed_forward, "mxfp4", dtypes.embedding)
    tied = values.get("tie_word_embeddings", fields.values.get("tie_word_embeddings", False))
    return ModelSpec(
        name=name,
        source=f"config.json of {values.get('_name_or_path') or name}",
        hidden_size=fields.hidden_size,
        vocab_size=fields.number("vocab_size"),
        groups=grouped(layers),
        tied_embeddings=bool(tied),
        weights=dtypes,
        kv_dtype=kv_dtype(stated),
        context=context_length({"model_type": values.get("model_type"), **_given(text)}, fields.where),
    )


def _nested(values: Mapping[str, Any]) -> str | None:
    return next((key for key in _NESTED if isinstance(values.get(key), dict)), None)


def _text(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the language model."""
    nested = _nested(values)
    return values[nested] if nested else values


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UsageError("model configuration not found", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not a model configuration: {error}", where=str(path)) from None
    if not isinstance(values, dict):
        raise UsageError("not a model configuration", where=str(path), expected="an object of fields")
    return values


def _architecture(values: Mapping[str, Any], text: Mapping[str, Any], where: str) -> Architecture:
    """Return the first known architecture, from the language model's own name outwards."""
    names = [name for source in (text, values) for name in _names(source)]
    for name in names:
        if architecture_key(name) in ARCHITECTURES:
            return ARCHITECTURES[architecture_key(name)]
    if not names:
        raise UsageError("no architectures and no model_type", where=where, hint="is it a config.json?")
    refusal = unknown_name("architecture", names[0], tuple(ARCHITECTURES))
    refusal.where, refusal.expected = where, "one that kvsim models list names"
    refusal.hint = "a draft to check: kvsim models new NAME --from config.json"
    raise refusal


def _names(values: Mapping[str, Any]) -> Iterator[str]:
    architectures = values.get("architectures")
    yield from map(str, architectures if isinstance(architectures, list) else ())
    if isinstance(values.get("model_type"), str):
        yield str(values["model_type"])
