"""``MODEL@SYSTEM[:ENGINE][:tpN,ppN,dpN,epN,DTYPE…]``: what is deployed, and how it is spread."""

from __future__ import annotations

import re
from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.model.aiconfigurator.names import ENGINES, MODELS, SAME_SHAPE, SYSTEMS, Dtypes
from kvcache_sim.values import dataclass

#: How a source of this kind begins.
PREFIX = "aiconfigurator:"
_EXPECTED = "MODEL@SYSTEM[:vllm|sglang|trtllm][:tp2,pp1,dp1,ep1,fp8,kv-fp8]"
_WEIGHTS = ("bf16", "fp8", "fp8_static", "fp8_block", "nvfp4", "int4_wo", "int8_wo")
_EXPERTS = ("bf16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4afp8", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8")
_FIELDS = {"weights": _WEIGHTS, "experts": _EXPERTS, "kv": ("bf16", "fp8"), "attention": ("bf16", "fp8")}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on GPUs: names as the library has them, degrees, dtypes; ``written_model``: as it came."""

    model: str
    system: str
    engine: str = "vllm"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1
    dtypes: Dtypes = Dtypes()
    written_model: str = ""

    @property
    def split_parts(self) -> int:
        """Parts that each expert is split into, ``tp·dp / ep``; UsageError when that is no whole number."""
        gpus = self.tensor_parallel * self.data_parallel
        if gpus % self.expert_parallel:
            raise UsageError(
                "ep must divide tp × dp", got=f"ep{self.expert_parallel}", expected=f"a divisor of {gpus}"
            )
        return gpus // self.expert_parallel


def parse_deployment(text: str) -> Deployment:
    """Return the deployment that a spelling without its prefix means; UsageError when it is none."""
    match = re.fullmatch(r"([^@]+)@([^@:]+)((?::[^@:]+)*)", text)
    if match is None:
        raise UsageError("not a deployment", got=repr(text), expected=_EXPECTED)
    parts = [part for part in re.split("[:,]", match[3]) if part]
    engine = parts.pop(0) if parts and parts[0] in ENGINES else "vllm"
    degrees = {"tp": 1, "pp": 1, "dp": 1, "ep": 1}
    dtypes: dict[str, str] = {}
    for part in parts:
        degree = re.fullmatch(r"(tp|pp|dp|ep)([1-9]\d{0,3})", part)
        if degree is not None:
            degrees[degree[1]] = int(degree[2])
        else:
            dtypes |= _dtype(part, text)
    return Deployment(
        model=library_model(match[1]),
        system=SYSTEMS.get(match[2].lower(), match[2]),
        engine=engine,
        tensor_parallel=degrees["tp"],
        pipeline_parallel=degrees["pp"],
        data_parallel=degrees["dp"],
        expert_parallel=degrees["ep"],
        dtypes=Dtypes(**dtypes),
        written_model=match[1],
    )


def library_model(written: str) -> str:
    """Return the library's name of a model, ours or another's."""
    named = MODELS.get(written.lower(), written)
    return SAME_SHAPE.get(named, (named, ""))[0]


def _dtype(part: str, text: str) -> dict[str, str]:
    """Return the dtype an option names: of weights and experts, or of one thing (``kv-fp8``)."""
    field, _, name = part.partition("-")
    found = {key: part for key in ("weights", "experts") if part in _FIELDS[key]}
    if name in _FIELDS.get(field, ()):
        found = {field: name}
    if not found:
        raise UsageError(f"not an option: {part}", got=repr(text), expected=_EXPECTED)
    return {key: "bfloat16" if dtype == "bf16" else dtype for key, dtype in found.items()}


def deployed_names(text: str) -> tuple[str | None, str | None, int]:
    """Return our model, our GPU and the TP degree of a spelling.

    A model that is not packaged is told by its configuration: that given, or the library's. None: neither.
    """
    from kvcache_sim.model.aiconfigurator.library import configuration_path
    from kvcache_sim.model.catalog import entry_names

    found = parse_deployment(text)
    model: str | None = found.written_model.lower()
    if model not in entry_names("models"):
        ours = [
            name for name, theirs in MODELS.items() if theirs == found.model and name in entry_names("models")
        ]
        path = configuration_path(found.model)
        model = ours[0] if ours else str(path) if path is not None else None
    gpus = {theirs: ours for ours, theirs in SYSTEMS.items()}
    gpu = gpus.get(found.system)
    return model, gpu if gpu in entry_names("gpus") else None, found.tensor_parallel


def is_local(model: str) -> bool:
    """Whether a model's name is a folder with a configuration."""
    return (Path(model) / "config.json").is_file()


#: The library's words for formats that a model's weights can be said to have.
_OURS = {"fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int8_wo": "int8"}


def deployed_dtypes(text: str) -> tuple[str, str]:
    """Return our formats of the KV cache and of all weights that a spelling says; empty: the model's own."""
    found = parse_deployment(text).dtypes
    return "fp8" if found.kv == "fp8" else "", _OURS.get(found.weights, "")
