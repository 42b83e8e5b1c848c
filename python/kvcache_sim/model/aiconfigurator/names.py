"""Our names of models and GPUs and the library's, and the dtypes it needs where it has no table as asked."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.values import dataclass

#: Our model, the library's.
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
#: Other spellings of models that the library has under one name, and why they are the same to it.
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
#: Our GPU, the library's system.
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


@dataclass(frozen=True, slots=True)
class Dtypes:
    """The formats of a deployment, in the library's words; empty weights are as the checkpoint has them.

    A 16-bit KV cache and attention are said, never left open: to the library a checkpoint in fp8 has an fp8
    KV cache, while vLLM's ``auto`` is 16 bit.
    """

    weights: str = ""
    experts: str = ""
    kv: str = "bfloat16"
    attention: str = "bfloat16"


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of dtypes that is tried, in order, where the library has no table for what was asked."""

    field: str
    before: tuple[str, ...]
    after: str
    reason: str

    def applies(self, dtypes: Dtypes) -> bool:
        """Whether it changes anything."""
        return getattr(dtypes, self.field) in self.before

    def of(self, dtypes: Dtypes) -> Dtypes:
        """Return the changed dtypes."""
        return replace(dtypes, **{self.field: self.after})


#: Each is tried alone, then together with those before it.
REPAIRS = (
    Repair("kv", ("bfloat16",), "fp8", "engines keep the compressed KV of this attention in fp8 alone"),
    Repair(
        "weights", ("fp8",), "fp8_block", "the checkpoint is scaled in blocks of 128 × 128, not by tensor"
    ),
    Repair("experts", ("fp8",), "fp8_block", "the experts are scaled in blocks of 128 × 128, not by tensor"),
)
#: Tried besides, last, for a server's label: it names one format of a checkpoint that mixes several.
LABEL_REPAIRS = (
    Repair("weights", ("nvfp4",), "", "only the experts are in nvfp4; the checkpoint says what the rest is"),
    Repair("experts", ("nvfp4", "fp8", "fp8_block"), "", "the experts as the checkpoint has them"),
    Repair("weights", ("fp8", "fp8_block", "int4_wo"), "", "the weights as the checkpoint has them"),
)
