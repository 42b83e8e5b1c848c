"""Models by name or file: the packaged ones, a model file (TOML), or a Hugging Face ``config.json``."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from msgspec.structs import FieldInfo, fields

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import Attention, HeadAttention, LinearAttention
from kvcache_sim.model.catalog import check_keys, entry_names, read_entry, read_toml, unknown_name
from kvcache_sim.model.dtypes import KV_DTYPES, check_dtype
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention
from kvcache_sim.model.layer_group import (
    DenseFeedForward,
    FeedForward,
    LayerGroup,
    MoeFeedForward,
    WeightDtypes,
    layers_text,
    parse_layers,
)
from kvcache_sim.model.model_spec import LENGTH_KEYS, SAMPLING, ContextLength, ModelSpec, context_length

_ATTENTION: dict[str, type[Any]] = {
    "full": HeadAttention,
    "sliding": HeadAttention,
    "chunked": HeadAttention,
    "linear": LinearAttention,
    "latent": LatentAttention,
    "latent-sparse": LatentAttention,
    "compressed": CompressedAttention,
}
_FEED_FORWARD: dict[str, type[Any]] = {"dense": DenseFeedForward, "moe": MoeFeedForward}
_TOP: dict[str, type | tuple[type, ...]] = {
    "source": str,
    "hidden_size": int,
    "vocab_size": int,
    "kv_dtype": str,
    "sampling": str,
    "params_total": int,
    "params_active": int,
    "weights": dict,
    "group": list,
    **dict.fromkeys((*LENGTH_KEYS, "original_max_position_embeddings"), int),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), dict),
}


def parse_model(table: dict[str, Any], name: str, where: str) -> ModelSpec:
    """Return the model of a parsed TOML file; ``where`` is its location in messages.

    Raises UsageError, in one line, for keys that are unknown, missing or of a wrong type, and layers left out
    or given twice.
    """
    tied = table.get("tied_embeddings", False)
    check_keys({key: value for key, value in table.items() if key != "tied_embeddings"}, _TOP, where)
    if not isinstance(tied, bool):
        raise UsageError("tied_embeddings must be true or false", where=where, got=repr(tied))
    for key in ("hidden_size", "vocab_size", "group"):
        if not table.get(key):
            raise UsageError(f"no {key}", where=where, hint="kvsim models new writes a file to start from")
    weights = table.get("weights", {})
    check_keys(weights, dict.fromkeys(WeightDtypes.__struct_fields__, str), f"{where} [weights]")
    for dtype in weights.values():
        check_dtype(dtype, f"{where} [weights]")
    stated = table.get("params_total")
    return ModelSpec(
        name=name,
        source=table.get("source", where),
        hidden_size=table["hidden_size"],
        vocab_size=table["vocab_size"],
        groups=_groups(table["group"], where),
        tied_embeddings=tied,
        weights=WeightDtypes(**weights),
        kv_dtype=check_dtype(table.get("kv_dtype", "bf16"), where, KV_DTYPES),
        stated_params=(stated, table.get("params_active", stated)) if stated else None,
        context=context_length(table, where),
        sampling=_sampling(table, where),
    )


def _sampling(table: dict[str, Any], where: str) -> str:
    given = str(table.get("sampling", ""))
    if given not in SAMPLING:
        raise UsageError("unknown sampling", where=where, got=given, expected=", ".join(SAMPLING[1:]))
    return given


def _groups(tables: list[Any], where: str) -> tuple[LayerGroup, ...]:
    groups: list[LayerGroup] = []
    for number, table in enumerate(tables, 1):
        location = f"{where} group {number}"
        if not isinstance(table, dict):
            raise UsageError("a group must be a table", where=location, got=repr(table))
        check_keys(table, {"layers": str, "attention": dict, "feed_forward": dict}, location)
        if "layers" not in table:
            raise UsageError("no layers", where=location, expected='such as layers = "0-31"')
        attention: Attention | None = None
        if "attention" in table:
            attention = _part(table["attention"], _ATTENTION, f"{location} attention")
        feed_forward: FeedForward | None = None
        if "feed_forward" in table:
            feed_forward = _part(table["feed_forward"], _FEED_FORWARD, f"{location} feed_forward")
        groups.append(LayerGroup(parse_layers(table["layers"], location), attention, feed_forward))
    found = sorted(chain.from_iterable(group.layers for group in groups))
    if found != list(range(len(found))):
        expected = "every layer from 0 on in one group"
        raise UsageError("layers left out or given twice", where=where, expected=expected)
    return tuple(groups)


def _part(table: dict[str, Any], kinds: dict[str, type[Any]], where: str) -> Any:
    """Return the attention or feed-forward of a table: its ``kind``, and the fields of that kind."""
    kind = table.get("kind")
    if kind not in kinds:
        refusal = unknown_name("kind", str(kind), tuple(kinds))
        refusal.where = where
        raise refusal
    rest = {key: value for key, value in table.items() if key != "kind"}
    if "indexer" in rest:
        rest["indexer"] = _filled(Indexer, rest["indexer"], f"{where} indexer")
    part = _filled(kinds[kind], rest, where)
    if part.kind != kind:
        raise UsageError(f"kind says {kind}, the other keys say {part.kind}", where=where)
    return part


def _filled(made: type[Any], table: dict[str, Any], where: str) -> Any:
    """Return a part built from its table; every number is at least 0, or at least 1 without a default."""
    model_fields = {field.name: field for field in fields(made)}
    check_keys(table, {name: _type(field) for name, field in model_fields.items()}, where)
    for name, field in model_fields.items():
        if field.required and name not in table:
            raise UsageError(f"no {name}", where=where)
        least = 1 if field.required else 0
        if isinstance(table.get(name), int) and table[name] < least:
            raise UsageError(f"{name} is too small", where=where, got=str(table[name]))
    return made(**table)


def _type(field: FieldInfo) -> type | tuple[type, ...]:
    if Indexer in get_args(field.type):
        return (Indexer, dict)
    return str if field.type is str else int


def model_text(model: ModelSpec) -> str:
    """Return a model as TOML that ``parse_model`` reads back."""
    lines = [f'source = "{model.source}"', f"hidden_size = {model.hidden_size}"]
    lines += [f"vocab_size = {model.vocab_size}"]
    lines += ["tied_embeddings = true"] if model.tied_embeddings else []
    lines += [f'kv_dtype = "{model.kv_dtype}"']
    lines += [f'sampling = "{model.sampling}"'] if model.sampling else []
    if model.stated_params:
        lines += [f"params_total = {model.stated_params[0]:_}", f"params_active = {model.stated_params[1]:_}"]
    lines += _context_lines(model.context)
    lines += ["", "[weights]"]
    lines += [f'{field.name} = "{getattr(model.weights, field.name)}"' for field in fields(WeightDtypes)]
    for group in model.groups:
        lines += ["", "[[group]]", f'layers = "{layers_text(group.layers)}"']
        for name, part in (("attention", group.attention), ("feed_forward", group.feed_forward)):
            if part is not None:
                lines.append(f'{name} = {{ kind = "{part.kind}", {_fields_text(part)} }}')
    return "\n".join(lines) + "\n"


def _context_lines(context: ContextLength) -> list[str]:
    """Return the lines that state a context length; a default below the longest is that of long RoPE."""
    default, longest = context.default_tokens, context.longest_tokens
    if longest is None:
        return []
    lines = [f"max_position_embeddings = {longest}"]
    if default != longest:
        lines += [
            f"original_max_position_embeddings = {default}",
            'rope_scaling = { rope_type = "longrope" }',
        ]
    return lines


def _fields_text(part: Any) -> str:
    texts = []
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Indexer):
            texts.append(f"{field.name} = {{ {_fields_text(value)} }}")
        elif value != field.default:
            texts.append(f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {value}")
    return ", ".join(texts)


#: Pattern of a packaged file's source that names the vendor's model: ``config.json of openai/gpt-oss-120b``.
_MAKER_ID = r"[\w.-]+/[\w.-]+[\w]"


def model_names() -> tuple[str, ...]:
    """Return the names of the packaged models."""
    return entry_names("models")


def names_model_file(name: str) -> bool:
    """True if a name is that of a file or folder, not of a packaged model."""
    return name.endswith((".toml", ".json")) or (name.lower() not in model_names() and Path(name).is_dir())


def shape_of(name: str) -> str:
    """Return the packaged model whose shape a packaged model has, or the name itself."""
    return str(read_entry("models", "model", name).get("like", name)) if name in model_names() else name


def maker_id(name: str) -> str:
    """Return the maker's id of a packaged model, such as ``openai/gpt-oss-120b``, or ""."""
    found = re.search(_MAKER_ID, read_entry("models", "model", name)["source"])
    return found[0] if found else ""


def packaged_name(name: str) -> str:
    """Return the packaged name of a name in any case or of a vendor's id (``openai/gpt-oss-120b``), or ""."""
    if name.lower() in model_names():
        return name.lower()
    if "/" not in name:
        return ""
    found = (known for known in model_names() if maker_id(known).lower() == name.lower())
    return next(found, "")


def load_model(name: str) -> ModelSpec:
    """Return a model by name or file.

    A packaged name (``llama-3-8b``) or its vendor's id (``meta-llama/Meta-Llama-3-8B``), a model file
    (``my.toml``), a Hugging Face configuration (``config.json``), or a folder that holds one. Raises
    UsageError:
    for an unknown name with all names and the nearest one, for a file in one line with the missing part.
    """
    path = Path(name)
    if name.endswith(".toml"):
        return parse_model(read_toml(path, "model"), path.stem, name)
    if name.lower() in model_names():
        return _packaged(name.lower())
    if name.endswith(".json") or names_model_file(name):
        from kvcache_sim.model.hugging_face.configuration import read_configuration

        return read_configuration(path / "config.json" if path.is_dir() else path)
    known = packaged_name(name)
    if not known:
        refusal = unknown_name("model", name, model_names(), "kvsim models list")
        refusal.hint = " ".join(filter(None, (refusal.hint, "or a file: ./config.json, my.toml")))
        raise refusal
    return _packaged(known)


@cache
def _packaged(name: str) -> ModelSpec:
    entry = read_entry("models", "model", name)
    table = {**(read_entry("models", "model", entry["like"]) if "like" in entry else {}), **entry}
    shape = {key: value for key, value in table.items() if key not in _OF_NAMES}
    return parse_model(shape, name, f"models/{name}.toml")


#: Keys of packaged files only: other spellings of the name, the model that has the same shape, and quantized
#: copies whose configuration states an FP8 KV cache.
_OF_NAMES = ("names", "like", "fp8_kv")
