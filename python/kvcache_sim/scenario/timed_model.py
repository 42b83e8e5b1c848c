"""Whether steps take as long as those of the model that is served."""

from __future__ import annotations

from kvcache_sim.errors import KvsimError
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.schema import ScenarioModel

#: Models whose weights differ by less, such as two releases of one size, count as one.
_ALIKE = 0.1


def other_model_timed(model: ScenarioModel) -> str | None:
    """Return a remark where the step-time set is of a model that differs from the one whose KV is kept.

    None where no time passes, the set names no model or one of its maker's own, or both have about as many
    weights.
    """
    replica, served = model.replica, str(model.model)
    if replica.instant:
        return None
    subject = measured_on(replica.step_time)
    if subject.model is None or subject.gpu is None or subject.model == served:
        return None
    try:
        own, timed = load_model(served), load_model(subject.model)
    except KvsimError:
        return None  # a name that nobody knows cannot be compared
    pairs = ((own.params_total, timed.params_total), (own.params_active, timed.params_active))
    if all(abs(a - b) <= _ALIKE * b for a, b in pairs):
        return None
    degree = f":tp{subject.tensor_parallel}" if subject.tensor_parallel > 1 else ""
    return (
        f"steps take as long as those of {subject.model} (replica.step_time: {replica.step_time}), KV is "
        f"that of {served}: its own steps are replica.step_time=roofline:{served}@{subject.gpu}{degree}"
    )
