"""A model as TOML: the packaged ones and a user's own."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.model.attention import Attention, HeadAttention, LinearAttention
from kvcache_sim.model.catalog import check_keys, unknown_name
from kvcache_sim.model.dtypes import KV_DTYPES, check_dtype
from kvcache_sim.model.feed_forward import DenseFeedForward, FeedForward, MoeFeedForward
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention
from kvcache_sim.model.layer_group import LayerGroup, layers_text, parse_layers
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.weight_count import WeightDtypes

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
    "params_total": int,
    "params_active": int,
    "weights": dict,
    "group": list,
}


def parse_model(table: dict[str, Any], name: str, where: str) -> ModelSpec:
    """Return the model that a parsed TOML file describes; ``where`` is its place in messages.

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
    check_keys(weights, {field.name: str for field in fields(WeightDtypes)}, f"{where} [weights]")
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
    )


def _groups(tables: list[Any], where: str) -> tuple[LayerGroup, ...]:
    groups: list[LayerGroup] = []
    for number, table in enumerate(tables, 1):
        place = f"{where} group {number}"
        if not isinstance(table, dict):
            raise UsageError("a group must be a table", where=place, got=repr(table))
        check_keys(table, {"layers": str, "attention": dict, "feed_forward": dict}, place)
        if "layers" not in table:
            raise UsageError("no layers", where=place, expected='such as layers = "0-31"')
        attention: Attention | None = None
        if "attention" in table:
            attention = _part(table["attention"], _ATTENTION, f"{place} attention")
        feed_forward: FeedForward | None = None
        if "feed_forward" in table:
            feed_forward = _part(table["feed_forward"], _FEED_FORWARD, f"{place} feed_forward")
        groups.append(LayerGroup(parse_layers(table["layers"], place), attention, feed_forward))
    found = sorted(number for group in groups for number in group.layers)
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
    """Return a part filled from its table; every number counts from 0, those without a default from 1."""
    own = {field.name: field for field in fields(made)}
    check_keys(table, {name: _type(field) for name, field in own.items()}, where)
    for name, field in own.items():
        needed = field.default is MISSING
        if needed and name not in table:
            raise UsageError(f"no {name}", where=where)
        least = 1 if needed else 0
        if isinstance(table.get(name), int) and table[name] < least:
            raise UsageError(f"{name} is too small", where=where, got=str(table[name]))
    return made(**table)


def _type(field: Field[Any]) -> type | tuple[type, ...]:
    named = str(field.type)
    if named.startswith("Indexer"):
        return (Indexer, dict)
    return str if named == "str" else int


def model_text(model: ModelSpec) -> str:
    """Return a model as TOML that ``parse_model`` reads back."""
    lines = [f'source = "{model.source}"', f"hidden_size = {model.hidden_size}"]
    lines += [f"vocab_size = {model.vocab_size}"]
    lines += ["tied_embeddings = true"] if model.tied_embeddings else []
    lines += [f'kv_dtype = "{model.kv_dtype}"']
    if model.stated_params:
        lines += [f"params_total = {model.stated_params[0]:_}", f"params_active = {model.stated_params[1]:_}"]
    lines += ["", "[weights]"]
    lines += [f'{field.name} = "{getattr(model.weights, field.name)}"' for field in fields(WeightDtypes)]
    for group in model.groups:
        lines += ["", "[[group]]", f'layers = "{layers_text(group.layers)}"']
        for name, part in (("attention", group.attention), ("feed_forward", group.feed_forward)):
            if part is not None:
                lines.append(f'{name} = {{ kind = "{part.kind}", {_fields_text(part)} }}')
    return "\n".join(lines) + "\n"


def _fields_text(part: Any) -> str:
    texts = []
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Indexer):
            texts.append(f"{field.name} = {{ {_fields_text(value)} }}")
        elif value != field.default:
            texts.append(f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {value}")
    return ", ".join(texts)
