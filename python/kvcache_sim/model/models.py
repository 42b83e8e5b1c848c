"""Models by name or file: the packaged ones, a model file (TOML), or a Hugging Face ``config.json``."""

from __future__ import annotations

import re
from pathlib import Path

from kvcache_sim.model.catalog import entry_names, read_entry, read_toml, unknown_name
from kvcache_sim.model.model_file import parse_model
from kvcache_sim.model.model_spec import ModelSpec

#: Where a packaged file's source names the maker's own: ``config.json of openai/gpt-oss-120b``.
_MAKER_ID = r"[\w.-]+/[\w.-]+[\w]"


def model_names() -> tuple[str, ...]:
    """Return the names of the packaged models."""
    return entry_names("models")


def names_model_file(name: str) -> bool:
    """Whether a name is that of a file or folder, not of a packaged model."""
    return name.endswith((".toml", ".json")) or (name.lower() not in model_names() and Path(name).is_dir())


def packaged_name(name: str) -> str:
    """Return the packaged name of a name in any case or of a maker's id (``openai/gpt-oss-120b``), or ""."""
    if name.lower() in model_names():
        return name.lower()
    if "/" not in name:
        return ""
    ids = {
        re.search(_MAKER_ID, read_entry("models", "model", known)["source"]): known for known in model_names()
    }
    found = (known for maker, known in ids.items() if maker and maker[0].lower() == name.lower())
    return next(found, "")


def load_model(name: str) -> ModelSpec:
    """Return a model by name or file.

    A packaged name (``llama-3-8b``) or its maker's id (``meta-llama/Meta-Llama-3-8B``), a model file
    (``my.toml``), a Hugging Face configuration (``config.json``), or a folder that holds one. Raises
    UsageError: for an unknown name with the names and the nearest one, for a file in one line that says what
    is missing.
    """
    path = Path(name)
    if name.endswith(".toml"):
        return parse_model(read_toml(path, "model"), path.stem, name)
    if name.endswith(".json") or names_model_file(name):
        from kvcache_sim.model.hugging_face.configuration import read_configuration

        return read_configuration(path / "config.json" if path.is_dir() else path)
    known = packaged_name(name)
    if not known:
        refusal = unknown_name("model", name, model_names(), "kvsim models list")
        refusal.hint = " ".join(filter(None, (refusal.hint, "or a file: ./config.json, my.toml")))
        raise refusal
    return parse_model(read_entry("models", "model", known), known, f"models/{known}.toml")
