"""The linear source: step time from four explicit costs, for experiments with a known clock."""

from __future__ import annotations

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_time_ns
from kvcache_sim.base.values import Value
from kvcache_sim.model.step_time import StepTime, StepTimeTable

#: Prefix of the name of a linear step time.
LINEAR = "linear:"
#: The model whose KV sizes apply if the scenario names none: a linear step time belongs to no model.
LINEAR_MODEL = "llama-3.1-8b"
_EXPECTED = "linear:base=5ms,token=20us,decode=1us,context=50ns; what is left out costs nothing"
_FS_PER_NS = 1_000_000


class LinearStepTime(Value, StepTime):
    """A step's time ``base + token·S + decode·D + context·X`` in ns, 0 for an empty step.

    S are all tokens of the step, D its decodes, X the tokens that its decodes attend to, their own included.
    """

    base_ns: int = 0
    token_ns: int = 0
    decode_ns: int = 0
    context_ns: int = 0

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers; it has only integers already."""
        context_fs = self.context_ns * _FS_PER_NS
        return StepTimeTable(
            base_ns=self._base(max_tokens),
            decode_base_ns=self._base(max_sequences),
            kv_decode_fs=context_fs,
            kv_mixed_fs=context_fs,
            sequence_fs=self.decode_ns * _FS_PER_NS + context_fs,
        )

    def _base(self, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        base = self.base_ns + self.token_ns * np.arange(most + 1, dtype=np.int64)
        base[0] = 0
        return base


def parse_linear(name: str) -> LinearStepTime:
    """Parse ``linear:base=…,token=…,decode=…,context=…``; UsageError if it is invalid."""
    costs: dict[str, int] = {}
    for part in name.removeprefix(LINEAR).split(","):
        key, equals, time = part.partition("=")
        if not equals or key not in ("base", "token", "decode", "context") or key in costs:
            raise UsageError("not a linear step time", got=repr(name), expected=_EXPECTED)
        costs[key] = parse_time_ns(time)
        if costs[key] > 3_600 * 10**9:
            raise UsageError(f"{key} is above an hour", got=repr(time), expected=_EXPECTED)
    return LinearStepTime(**{f"{key}_ns": ns for key, ns in costs.items()})
