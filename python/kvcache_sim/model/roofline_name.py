"""Parser of a roofline's name: ``MODEL@GPU``, and after a colon its degrees and formats."""

from __future__ import annotations

import re
from collections.abc import Callable

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.dtypes import DTYPES, KV_DTYPES
from kvcache_sim.model.gpus import gpu_name
from kvcache_sim.model.model_file import load_model, names_model_file
from kvcache_sim.model.model_spec import ModelSpec

_PARTS = r"([^@:]+)@([^@:]+)(?::([^@:]*))?"


class RooflineName(Value):
    """A parsed roofline name.

    ``options`` are degrees (``tp8``, ``ep2``, ``dp2``), a format of all weights (``fp8``), and ``kv-fp8``.
    """

    model: str
    gpu: str
    options: tuple[str, ...] = ()

    @property
    def tensor_parallel(self) -> int:
        """The TP degree, 1 where none is given."""
        return self._degree("tp")

    @property
    def data_parallel(self) -> int:
        """The data-parallel ranks, 1 where none are given."""
        return self._degree("dp")

    @property
    def expert_parallel(self) -> int:
        """The EP degree, 1 where none is given."""
        return self._degree("ep")

    def _degree(self, kind: str) -> int:
        return next((int(one[2:]) for one in self.options if _is_degree(one) and one[:2] == kind), 1)

    @property
    def weight_dtype(self) -> str:
        """The format of all weights except the embeddings; empty: the model's."""
        return next((one for one in self.options if one in DTYPES), "")

    @property
    def kv_dtype(self) -> str:
        """The format of the KV cache; empty: the model's."""
        return next((one[3:] for one in self.options if one.startswith("kv-")), "")

    def spec(self) -> ModelSpec:
        """Return the model with the formats of the name; raises UsageError as ``load_model``."""
        return load_model(self.model).with_dtypes(self.weight_dtype, self.kv_dtype)

    def absolute(self, absolute: Callable[[str], str]) -> str:
        """Return the name with its files replaced by ``absolute``."""
        model = absolute(self.model) if names_model_file(self.model) else self.model
        gpu = absolute(self.gpu) if self.gpu.endswith(".toml") else self.gpu
        return f"{model}@{gpu}" + (f":{','.join(self.options)}" if self.options else "")


def parse_roofline(text: str) -> RooflineName:
    """Parse ``MODEL@GPU[:tpN,epN,dpN,fp8,kv-fp8]``; UsageError if it is invalid."""
    match = re.fullmatch(_PARTS, text)
    options = tuple(match[3].split(",")) if match and match[3] is not None else ()
    known = [_is_degree(one) or one in DTYPES or one.removeprefix("kv-") in KV_DTYPES for one in options]
    if match is None or not all(known):
        raise UsageError(
            "not a roofline",
            got=repr(text),
            expected="MODEL@GPU or MODEL@GPU:tp2,ep4,dp2,fp8,kv-fp8",
            hint="MODEL and GPU each a packaged name or a file; fp8 is the weights' format, kv-fp8 the KV's",
        )
    return RooflineName(match[1], gpu_name(match[2]), options)


def _is_degree(option: str) -> bool:
    return re.fullmatch(r"(tp|ep|dp)[1-9]\d{0,2}", option) is not None
