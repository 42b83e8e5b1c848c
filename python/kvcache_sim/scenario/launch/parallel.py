"""Degrees of parallelism: of a launch line, as the settings that spread an engine over GPUs and machines."""

from __future__ import annotations

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.model_file import load_model
from kvcache_sim.scenario.launch.making import Given, Making
from kvcache_sim.scenario.launch.weights import has_experts


class Degrees(Value):
    """Degrees of one machine's step times, and how many of them there are.

    ``ranks`` step together (``replica.dp``), ``machines`` by themselves; ``attention`` is the number of
    SGLang's ranks of attention, which share some of a line's numbers.
    """

    tensor: int = 1
    experts: int = 1
    stages: int = 1
    ranks: int = 1
    machines: int = 1
    attention: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of a machine, or of a rank."""
        return self.tensor * self.stages


def degrees_of(made: Making, model: str, lower: bool) -> Degrees:
    """Return the degrees of a line and count their flags as read; ``lower``: tiers below the GPU follow.

    Ranks of a mixture (vLLM) or of attention (SGLang) step together, but not above a lower tier.
    """
    mixes = has_experts(load_model(model))
    tensor, stages, copies = (_count(made, rule) for rule in ("tp", "pp", "dp"))
    if made.line.engine.name == "vllm":
        experts = _taken(made, "ep")
        for given in [] if mixes else experts:
            made.note("no effect", str(given), f"{model} has no experts")
        spread = tensor * copies if mixes and any(given.on for given in experts) else 1
        together = mixes and copies > 1
        ranks, machines, attention = (copies, 1, 1) if together else (1, copies, 1)
    else:
        copies, ranks = _ranks_of_attention(made, tensor, copies)
        spread, attention, machines, together = _spread(made, tensor, mixes), ranks, copies, ranks > 1
        tensor //= ranks
    if together and lower:
        made.note("assumed", "ranks step by themselves: lock step goes with no lower tier here")
        ranks, machines = 1, machines * ranks
    return Degrees(tensor, spread, stages, ranks, machines, attention)


def _ranks_of_attention(made: Making, tensor: int, copies: int) -> tuple[int, int]:
    """Return the copies of an engine, and the ranks of attention in the tensor-parallel group of each."""
    attention = _count(made, "attention-ranks")
    for switch in _taken(made, "attention"):
        every = copies if made.line.engine.name == "sglang" else tensor
        if switch.on and every > 1:
            copies, attention = (1 if made.line.engine.name == "sglang" else copies), every
        else:
            made.note("no effect", str(switch), "there is one rank of attention")
    if tensor % attention:
        what = "ranks of attention are parts of the tensor-parallel group"
        raise UsageError(what, "--dp-size", str(attention), f"a divisor of {tensor}")
    return copies, attention


def _spread(made: Making, tensor: int, mixes: bool) -> int:
    """Return the ranks that share the experts."""
    if not mixes:
        for given in (*_taken(made, "ep"), *_taken(made, "ep-all")):
            made.note("no effect", str(given), "the model has no experts")
    spread = _count(made, "ep")
    for given in _taken(made, "ep-all"):
        if given.text in given.flag.usual and given.text:
            made.note("no effect", str(given), "it is the default")
        else:
            spread = tensor
            made.note("assumed", f"{given} spreads the experts over {tensor} ranks, with the usual kernels")
    return spread


def write_degrees(made: Making, degrees: Degrees) -> None:
    """Write the settings of ranks and machines, with the engine's own balancer."""
    if degrees.ranks > 1:
        made.write("replica.dp", str(degrees.ranks), "--data-parallel-size")
    if degrees.machines > 1:
        around = made.tree.values.get("cluster", {}).get("machines", 1)
        made.write("cluster.machines", str(degrees.machines * around), "--data-parallel-size")
    outside = _taken(made, "lb")
    for given in outside:
        made.note(
            "assumed", f"{given}: the balancer in front is not in the line; router.policy is round-robin"
        )
    is_outside = any(given.on for given in outside)
    if (
        not is_outside
        and degrees.machines > 1
        and made.line.engine.name == "vllm"
        and not made.has("router.policy")
    ):
        made.write("router.policy", "vllm-dp", "--data-parallel-size")
    for balancer in _taken(made, "balance"):
        policy = balancer.flag.words.get(balancer.text, "")
        if degrees.machines == 1:
            made.note("no effect", str(balancer), "there is one machine, whose ranks take turns")
        elif policy:
            made.write("router.policy", policy, balancer.flag.name)
        else:
            made.leave(balancer, "nearest: router.policy", decides=balancer.text != "auto")


def write_stages(made: Making, stages: int) -> None:
    """Write pipeline stages, under the engine's own scheduler; say why where they cannot be."""
    if stages == 1:
        return
    name = made.line.engine.name
    settings = {"replica.pp": str(stages), "replica.scheduler": name, "cache.semantics": name}
    flag = next(given.flag.name for given in made.read.values() if given.flag.rule == "pp")
    if why := made.attempt(settings, flag):
        made.note("decides", f"{flag} {stages}", why)
    else:
        made.note("assumed", "stages are on one machine, over the GPU's links; host times are vllm-stages'")


def write_shared_tokens(made: Making) -> None:
    """Write context parallelism: a block spans the GPUs of a group, each with the line's block size."""
    count = _count(made, "cp")
    if count == 1:
        return
    flag = next(given.flag.name for given in made.read.values() if given.flag.rule == "cp")
    block = int(made.tree.values["cache"]["block_size"]) * count
    if why := made.attempt({"replica.cp": str(count), "cache.block_size": str(block)}, flag):
        made.note("decides", f"{flag} {count}", why)


def _taken(made: Making, rule: str) -> list[Given]:
    """Return the flags of a rule, counted as read."""
    names = [name for name, given in made.given.items() if given.flag.rule == rule]
    return [given for name in names if (given := made.take(name)) is not None]


def _count(made: Making, rule: str) -> int:
    """Return the number of GPUs or ranks of a rule's flag; 1 without it. UsageError for an invalid number."""
    given = _taken(made, rule)
    text = given[-1].text if given else "1"
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        where = given[-1].flag.name
        raise UsageError("no number of GPUs", where=where, got=repr(text)[:60], expected="1 to 4096")
    return int(text)
