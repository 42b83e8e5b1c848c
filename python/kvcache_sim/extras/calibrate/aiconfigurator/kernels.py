"""Step times from the library: one call per step, errors as one line, sources of its figures."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import REPAIRS, Deployment, Dtypes, Repair
from kvcache_sim.extras.calibrate.aiconfigurator.library import (
    check_system,
    is_mixture,
    model_configuration,
    read_packaged_alone,
)
from kvcache_sim.extras.calibrate.rows import IterationRows

#: The library's operations that are all-reduces among the GPUs of one tensor-parallel group.
_ALL_REDUCE = re.compile(r"_ar(_\d+)?$|_(pre|post)_dispatch$")
#: Those that data-parallel ranks do together: their exchange, and the experts.
EXCHANGE = re.compile(r"_(pre|post)_dispatch$")
SHARED = re.compile(r"_moe$|_(pre|post)_dispatch$")
_LARGEST_DECODE = 512
#: Steps that every table must support before it is sampled: (prompt tokens, past, decodes, their KV).
_PROBES = ((0, 0, 4, 4096), (512, 0, 0, 0), (512, 0, 4, 4096))


@dataclass(frozen=True, slots=True)
class MeasuredKernels:
    """The library's model of one deployment, the dtypes of its tables, and the changes made to find them.

    ``fallbacks`` counts the tables that the library reports as low fidelity.
    """

    model: Any
    deployment: Deployment
    dtypes: Dtypes
    repairs: tuple[str, ...]
    fallbacks: int
    mixture: bool

    def step_ms(self, prefill_tokens: int, past: int, decodes: int, kv_tokens: int) -> float:
        """Return the ms of a step of one prefill chunk and ``decodes`` sequences; raises library errors."""
        rank = {
            "version": 1,
            "scheduled_requests": {
                "num_prefill_requests": int(prefill_tokens > 0),
                "sum_prefill_tokens": prefill_tokens,
                "sum_prefill_kv_tokens": past,
                "num_decode_requests": decodes,
                "sum_decode_kv_tokens": kv_tokens,
            },
        }
        return float(self.model.estimate_forward_pass_time_ms([rank] * self.deployment.data_parallel))

    def rows(self, steps: NDArray[np.int64]) -> IterationRows:
        """Return steps (prompt tokens, past, decodes, their KV) with their times; all of equal length.

        Raises UsageError for a step that the library refuses.
        """
        with self.asked() as step_ms:
            ms = np.array([step_ms(*step) for step in steps.tolist()])
        new, past, n, kv = steps.T.astype(np.float64)
        one = np.ones(len(steps))
        return IterationRows(new, (new > 0) * one, past, n, kv, kv / np.maximum(n, 1), one, ms)

    @contextlib.contextmanager
    def asked(self) -> Iterator[Callable[[int, int, int, int], float]]:
        """Yield ``step_ms`` for many steps, with the library silenced; UsageError for a refused step."""
        try:
            with _quiet():
                yield self.step_ms
        except Exception as error:
            raise refused(self.deployment, error) from None

    def formats(self) -> str:
        """Return every dtype in one line; unnamed weights have the format that the library infers."""
        from aiconfigurator_core.sdk.config_builders import build_model_config
        from aiconfigurator_core.sdk.models import get_model

        degrees: dict[str, Any] = {
            "moe_tp_size": 1,
            "moe_ep_size": 1,
            **_degrees(self.deployment, self.mixture),
        }
        with _quiet():
            found = get_model(
                self.deployment.model, build_model_config(**degrees), self.deployment.engine
            ).config
        weights = self.dtypes.weights or getattr(found.gemm_quant_mode, "name", "unknown")
        text = f"weights {weights}"
        if self.mixture:
            text += f", experts {self.dtypes.experts or getattr(found.moe_quant_mode, 'name', 'unknown')}"
        return f"{text}, KV cache {self.dtypes.kv}, attention {self.dtypes.attention}"

    def shares(self) -> dict[str, float]:
        """Return the share of a decode step's and a prompt's time by kind of source."""
        found: Counter[str] = Counter()
        with _quiet():
            handle = self._handle()
            decode = handle.decode_step_per_op(32, 4096, 2)
            prompt = handle.run_static_per_op(
                batch_size=1, beam_width=1, isl=2048, osl=2, prefix=0, mode="static_ctx"
            )[0]
        for step in (decode, prompt):
            total = sum(ms for _, ms, _, _ in step) or 1.0
            for _, ms, _, source in step:
                found[source] += ms / total / 2
        return dict(found.most_common())

    def all_reduces_ms(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return the ms of a step's all-reduces at each token count; 0 if the library has none separately."""
        return self.operations_ms(tokens, _ALL_REDUCE)

    def operations_ms(self, tokens: Sequence[int], names: re.Pattern[str]) -> NDArray[np.float64]:
        """Return the ms of a step's operations of these names at each count of a rank's tokens.

        Up to 512 tokens those of a decode step, above those of a prompt.
        """
        found = []
        with _quiet():
            handle = self._handle()
            for count in tokens:
                if count <= _LARGEST_DECODE:
                    step = handle.decode_step_per_op(count, 128, 2)
                else:
                    step = handle.run_static_per_op(
                        batch_size=1, beam_width=1, isl=count, osl=2, prefix=0, mode="static_ctx"
                    )[0]
                found.append(sum(ms for name, ms, _, _ in step if names.search(name)))
        return np.array(found, np.float64)

    def _handle(self) -> Any:
        """Return the library's engine that lists its operations separately."""
        from aiconfigurator_core.sdk.engine import EngineHandle

        degrees: dict[str, Any] = _degrees(self.deployment, self.mixture)
        return EngineHandle.compile(
            self.deployment.model,
            self.deployment.system,
            self.deployment.engine,
            **degrees,
            gemm_quant_mode=self.dtypes.weights or None,
            moe_quant_mode=self.dtypes.experts or None,
            kvcache_quant_mode=self.dtypes.kv,
            fmha_quant_mode=self.dtypes.attention,
        )


def measured_kernels(deployment: Deployment, repairs: tuple[Repair, ...] = REPAIRS) -> MeasuredKernels:
    """Return the library's model of a deployment.

    If it has no table for the requested dtypes, ``repairs`` are tried in order. Raises UsageError, in one
    line, for an unknown model, a system without kernels, or dtypes that no repair helps.
    """
    mixture = is_mixture(model_configuration(deployment.model))
    read_packaged_alone()
    check_system(deployment.system, deployment.engine)
    if not mixture and deployment.expert_parallel > 1:
        raise UsageError(f"{deployment.model} has no experts", got=f"ep{deployment.expert_parallel}")
    degrees = _degrees(deployment, mixture)
    first: Exception | None = None
    for dtypes, reasons in _attempts(deployment.dtypes, repairs):
        try:
            with _quiet() as said:
                model = _compiled(deployment, degrees, dtypes)
                kernels = MeasuredKernels(model, deployment, dtypes, reasons, 0, mixture)
                for probe in _PROBES:
                    kernels.step_ms(*probe)
            fallbacks = sum("low-fidelity" in line for line in said)
            return replace(kernels, fallbacks=fallbacks)
        except Exception as error:
            first = first or error
    assert first is not None
    raise refused(deployment, first)


def refused(deployment: Deployment, error: Exception) -> UsageError:
    """Return the library's error as one line: its first sentence, without paths."""
    text = str(error).removeprefix("unsupported model for Rust core estimator: ").split("\n")[0]
    text = text.split(" at /")[0].split(": tried ")[0]
    where = f"{deployment.model}@{deployment.system}:{deployment.engine}"
    hint = "another engine or dtype may be measured: :sglang, :trtllm, fp8, kv-fp8"
    return UsageError("aiconfigurator-core has no time for it", where, got=text[:240], hint=hint)


def _attempts(asked: Dtypes, repairs: tuple[Repair, ...]) -> Iterator[tuple[Dtypes, tuple[str, ...]]]:
    """Yield the requested dtypes, then each repair alone, then all repairs up to it, with the reasons."""
    yield asked, ()
    together = asked
    reasons: tuple[str, ...] = ()
    for repair in repairs:
        if repair.applies(asked):
            yield repair.of(asked), (repair.reason,)
        if repair.applies(together):
            together, reasons = repair.of(together), (*reasons, repair.reason)
            yield together, reasons


def _degrees(deployment: Deployment, mixture: bool) -> dict[str, int]:
    degrees = {
        "tp_size": deployment.tensor_parallel,
        "pp_size": deployment.pipeline_parallel,
        "attention_dp_size": deployment.data_parallel,
    }
    if mixture:
        degrees |= {"moe_tp_size": deployment.split_parts, "moe_ep_size": deployment.expert_parallel}
    return degrees


def _compiled(deployment: Deployment, degrees: dict[str, int], dtypes: Dtypes) -> Any:
    from aiconfigurator_core.sdk.rust_engine_step import RustForwardPassPerfModel

    config: dict[str, Any] = {
        "schema_version": 1,
        "model_name": deployment.model,
        "system_name": deployment.system,
        "backend": deployment.engine,
        "kv_cache_dtype": dtypes.kv,
        "activation_dtype": dtypes.attention,
        **degrees,
    }
    given = {"weight_dtype": dtypes.weights, "moe_dtype": dtypes.experts}
    # The call cannot express weights that are dequantized first; the compiler behind it can.
    given = {key: dtype.removesuffix("_wo") for key, dtype in given.items()}
    return RustForwardPassPerfModel.from_native({**config, **{k: v for k, v in given.items() if v}})


@contextlib.contextmanager
def _quiet() -> Iterator[list[str]]:
    """Silence the library's logs, prints and writes to standard error; yields the lines, at the end.

    The library writes from Python and from Rust, so the file descriptor is redirected.
    """
    lines: list[str] = []
    saved, level = os.dup(2), logging.root.manager.disable
    with tempfile.TemporaryFile("w+") as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            logging.disable(level)
            aside.seek(0)
            lines += aside.read().splitlines()
