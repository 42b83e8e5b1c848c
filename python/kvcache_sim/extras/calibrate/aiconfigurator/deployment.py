"""``MODEL@SYSTEM[:ENGINE][:tpN,ppN,dpN,epN,DTYPE…]``: the deployed model and its parallelism."""

from __future__ import annotations

import re
from dataclasses import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value

#: kvsim's model name → the library's.
MODELS = {
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
    "deepseek-v4-flash": "deepseek-ai/DeepSeek-V4-Flash",
    "gemma-4-26b": "google/gemma-4-26B-A4B",
    "glm-5": "zai-org/GLM-5",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "llama-3-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "mixtral-8x22b": "mistralai/Mixtral-8x22B-v0.1",
    "nemotron-3-nano": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "qwen3-0.6b": "Qwen/Qwen3-0.6B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3.5-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
    "qwen3.6-35b-a3b": "Qwen/Qwen3.5-35B-A3B",
}
#: Other names of models that the library has under one name, and why they are equivalent.
SAME_SHAPE = {
    "meta-llama/Llama-3.1-8B": ("meta-llama/Meta-Llama-3.1-8B", "renamed by its maker"),
    "meta-llama/Llama-3.1-8B-Instruct": ("meta-llama/Meta-Llama-3.1-8B", "same shape as the base model"),
    "meta-llama/Meta-Llama-3.1-8B-Instruct": ("meta-llama/Meta-Llama-3.1-8B", "same shape as the base model"),
    "meta-llama/Llama-3.1-70B": ("meta-llama/Meta-Llama-3.1-70B", "renamed by its maker"),
    "meta-llama/Llama-3.1-70B-Instruct": ("meta-llama/Meta-Llama-3.1-70B", "same shape as the base model"),
    "meta-llama/Llama-3.3-70B-Instruct": ("meta-llama/Meta-Llama-3.1-70B", "same shape"),
    "nvidia/Llama-3.1-8B-Instruct-FP8": (
        "meta-llama/Meta-Llama-3.1-8B",
        "same shape; dtypes are given apart",
    ),
    "nvidia/DeepSeek-R1-NVFP4": ("nvidia/DeepSeek-V3.1-NVFP4", "same shape and format"),
    "nvidia/Qwen3-32B-NVFP4": ("Qwen/Qwen3-32B", "same shape; dtypes are given apart"),
    "Qwen/Qwen3.6-35B-A3B": ("Qwen/Qwen3.5-35B-A3B", "same shape, trained further"),
    "zhipuai/GLM-5": ("zai-org/GLM-5", "its maker's other account"),
}
#: kvsim's GPU name → the library's system.
SYSTEMS = {
    "a100": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
ENGINES = ("vllm", "sglang", "trtllm")


class Dtypes(Value):
    """The formats of a deployment, in the library's words; empty weights mean the checkpoint's formats.

    A 16-bit KV cache and attention are always explicit: the library assumes an fp8 KV cache for a checkpoint
    in fp8, while vLLM's ``auto`` is 16 bit.
    """

    weights: str = ""
    experts: str = ""
    kv: str = "bfloat16"
    attention: str = "bfloat16"


class Repair(Value):
    """A change of dtypes, tried in order, if the library has no table for the requested dtypes."""

    field: str
    before: tuple[str, ...]
    after: str
    reason: str

    def applies(self, dtypes: Dtypes) -> bool:
        """True if it changes the dtypes."""
        return getattr(dtypes, self.field) in self.before

    def of(self, dtypes: Dtypes) -> Dtypes:
        """Return the changed dtypes."""
        return replace(dtypes, **{self.field: self.after})


#: Each repair is tried alone, then together with the repairs before it.
REPAIRS = (
    Repair("kv", ("bfloat16",), "fp8", "engines keep the compressed KV of this attention in fp8 alone"),
    Repair(
        "weights", ("fp8",), "fp8_block", "the checkpoint is scaled in blocks of 128 × 128, not by tensor"
    ),
    Repair("experts", ("fp8",), "fp8_block", "the experts are scaled in blocks of 128 × 128, not by tensor"),
)
#: Tried last, for a server's label: the label names one format of a checkpoint that mixes several.
LABEL_REPAIRS = (
    Repair("weights", ("nvfp4",), "", "only the experts are in nvfp4; the checkpoint says what the rest is"),
    Repair("experts", ("nvfp4", "fp8", "fp8_block"), "", "the experts as the checkpoint has them"),
    Repair("weights", ("fp8", "fp8_block", "int4_wo"), "", "the weights as the checkpoint has them"),
)


_EXPECTED = "MODEL@SYSTEM[:vllm|sglang|trtllm][:tp2,pp1,dp1,ep1,fp8,kv-fp8]"
_WEIGHTS = ("bf16", "fp8", "fp8_static", "fp8_block", "nvfp4", "int4_wo", "int8_wo")
_EXPERTS = ("bf16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4afp8", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8")
_FIELDS = {"weights": _WEIGHTS, "experts": _EXPERTS, "kv": ("bf16", "fp8"), "attention": ("bf16", "fp8")}


class Deployment(Value):
    """A model on GPUs: the library's names, degrees, dtypes; ``written_model``: the name as written."""

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
        """Number of parts of each expert, ``tp·dp / ep``; UsageError if it is not a whole number."""
        gpus = self.tensor_parallel * self.data_parallel
        if gpus % self.expert_parallel:
            raise UsageError(
                "ep must divide tp × dp", got=f"ep{self.expert_parallel}", expected=f"a divisor of {gpus}"
            )
        return gpus // self.expert_parallel


def parse_deployment(text: str) -> Deployment:
    """Parse a deployment name without its prefix; UsageError if it is invalid."""
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
    """Return the library's name of a model, given kvsim's name or another one."""
    named = MODELS.get(written.lower(), written)
    return SAME_SHAPE.get(named, (named, ""))[0]


def _dtype(part: str, text: str) -> dict[str, str]:
    """Return the dtype of an option: of weights and experts, or of one part (``kv-fp8``)."""
    field, _, name = part.partition("-")
    found = {key: part for key in ("weights", "experts") if part in _FIELDS[key]}
    if name in _FIELDS.get(field, ()):
        found = {field: name}
    if not found:
        raise UsageError(f"not an option: {part}", got=repr(text), expected=_EXPECTED)
    return {key: "bfloat16" if dtype == "bf16" else dtype for key, dtype in found.items()}


def deployed_names(text: str) -> tuple[str | None, str | None, int]:
    """Return kvsim's model name, GPU name and the TP degree of a deployment name.

    A model that is not packaged is identified by its configuration: a given one, or the library's. None: no
    packaged model or GPU matches.
    """
    from kvcache_sim.extras.calibrate.aiconfigurator.library import configuration_path
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


#: The library's words for weight formats.
_OURS = {"fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int8_wo": "int8"}


def deployed_dtypes(text: str) -> tuple[str, str]:
    """Return kvsim's formats of the KV cache and of all weights in a name; empty: the model's own."""
    found = parse_deployment(text).dtypes
    return "fp8" if found.kv == "fp8" else "", _OURS.get(found.weights, "")
