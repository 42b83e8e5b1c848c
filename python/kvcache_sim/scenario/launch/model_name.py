"""A model's name on Hugging Face to one of the catalogue."""

from __future__ import annotations

import re

from kvcache_sim.errors import UsageError
from kvcache_sim.model.model_file import model_names, names_model_file
from kvcache_sim.spelling import close_matches

#: Endings of names that say how a model was tuned or stored, not how it is built.
_TUNED = re.compile(r"-(instruct|chat|it|hf|base|fp8|awq|gptq|int4|bf16|thinking|\d{4})(?=-|$)")


def model_of(name: str) -> str:
    """Return the catalogue's name of a model: ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``.

    A model file or a folder with a ``config.json`` stays. Raises UsageError with the nearest names.
    """
    if names_model_file(name):
        return name
    plain = name.rpartition("/")[2].lower().replace("_", "-")
    known = model_names()
    tried = [plain, _TUNED.sub("", plain), _TUNED.sub("", plain).removeprefix("meta-")]
    for candidate in tried:
        if candidate in known:
            return candidate
    near = close_matches(tried[-1], known, n=3)
    hint = f"--model NAME: {' or '.join(near)}?" if near else "--model NAME or config.json says which it is"
    raise UsageError("a model that the catalogue does not have", where="--from", got=repr(name), hint=hint)
