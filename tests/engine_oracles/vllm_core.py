"""vLLM's own scheduler, cache manager and offloading manager from its wheel, on a machine without a GPU.

Stood in for: torch, the configuration (a record of the values set here), model runner, structured output, statistics,
metrics, connectors. Decisions are the wheel's.
"""

from __future__ import annotations

import contextlib
import sys
import types
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvcache_sim.workload.trace import Trace

from engine_oracles import stubs

BLOCK = 16
#: Modules that are vLLM's own; everything else of it is stood in for.
REAL = frozenset(
    f"vllm.{name}"
    for name in (
        "v1.core.block_pool",
        "v1.core.kv_cache_coordinator",
        "v1.core.kv_cache_manager",
        "v1.core.kv_cache_metrics",
        "v1.core.kv_cache_utils",
        "v1.core.sched.async_scheduler",
        "v1.core.sched.interface",
        "v1.core.sched.output",
        "v1.core.sched.request_queue",
        "v1.core.sched.scheduler",
        "v1.core.sched.utils",
        "v1.core.single_type_kv_cache_manager",
        "v1.kv_cache_interface",
        "v1.kv_cache_layout",
        "v1.kv_cache_spec_registry",
        "v1.kv_offload",
        "v1.kv_offload.base",
        "v1.kv_offload.config",
        "v1.kv_offload.cpu",
        "v1.kv_offload.cpu.common",
        "v1.kv_offload.cpu.manager",
        "v1.kv_offload.cpu.policies",
        "v1.kv_offload.cpu.policies.arc",
        "v1.kv_offload.cpu.policies.base",
        "v1.kv_offload.cpu.policies.factory",
        "v1.kv_offload.cpu.policies.lru",
        "v1.kv_offload.tiering",
        "v1.kv_offload.tiering.base",
        "v1.kv_offload.tiering.example",
        "v1.kv_offload.tiering.example.manager",
        "v1.kv_offload.tiering.manager",
        "v1.request",
        "utils.math_utils",
        *(
            f"distributed.kv_transfer.kv_connector.v1.{name}"
            for name in (
                "base",
                "offloading.common",
                "offloading.config",
                "offloading.events",
                "offloading.scheduler",
                "offloading_connector",
            )
        ),
    )
)
_PACKAGES = ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched", "vllm.utils")
#: Packages that have every name, and real modules.
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1"
_NAMED = ("vllm.distributed", *(f"vllm.distributed.kv_transfer{part}" for part in ("", ".kv_connector")))


class Kind(type):
    """A class that has every name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return stubs.Anything()


class Named(stubs.StubModule):
    """A module that makes a class of every capitalized name, so that types are distinct."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        is_class = name[0].isupper() and name[1].islower() and not name.endswith("Enum")
        made = Kind(name, (stubs.Anything,), {}) if is_class else stubs.Anything()
        setattr(self, name, made)
        return made


class Finder(stubs.StubFinder):
    """As its base, with classes for names."""

    def create_module(self, spec: Any) -> types.ModuleType:
        return Named(spec.name)


class Record:
    """A configuration: the values given, None for all else."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


#: A look-up's answers before vLLM named them.
FOUND = types.SimpleNamespace(HIT=True, HIT_PENDING=None)


def load(wheel: Path) -> types.SimpleNamespace:
    """Import the classes from an unpacked wheel."""
    for package in _PACKAGES:
        module = types.ModuleType(package)
        module.__path__ = [str(wheel / package.replace(".", "/"))]
        sys.modules[package] = module
    for package in (*_NAMED, _CONNECTOR, f"{_CONNECTOR}.offloading"):
        sys.modules[package] = made = Named(package)
        made.__path__ = [str(wheel / package.replace(".", "/"))]
    finder = Finder(("torch", "vllm", "msgspec", "cbor2", "xxhash", "regex", "cloudpickle", "zmq"), REAL)
    sys.meta_path.insert(0, finder)
    sys.path.append(str(wheel))
    sys.modules["vllm.utils"].length_from_prompt_token_ids_or_embeds = lambda ids, _: len(ids)  # type: ignore[attr-defined]
    import torch
    import vllm.envs

    vllm.envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = None

    torch.dtype = type("dtype", (str,), {})
    torch.bfloat16, torch.float32, torch.uint8 = map(torch.dtype, ("bf16", "fp32", "u8"))
    import vllm.utils.torch_utils as sizes
    import vllm.v1.metrics.stats as statistics
    import vllm.v1.utils as own

    statistics.KV_FETCH_STAGES = ()

    sizes.get_dtype_size = lambda dtype: 2
    own.ConstantList = lambda tokens: tokens
    own.record_function_or_nullcontext = lambda name: contextlib.nullcontext()
    import vllm.v1.structured_output.request as grammar

    grammar.StructuredOutputRequest = types.SimpleNamespace(from_sampling_params=lambda params: None)
    import vllm.v1.core.kv_cache_coordinator as coordinator
    import vllm.v1.core.single_type_kv_cache_manager as managers
    import vllm.v1.kv_cache_interface as interface
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_offload import base as offload
    from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
    from vllm.v1.kv_offload.tiering import manager as tiering
    from vllm.v1.kv_offload.tiering.example.manager import ExampleSecondaryTierManager
    from vllm.v1.request import Request, RequestStatus

    managers.register_all_kvcache_specs(None)
    coordinator.partial_hash_hits_enabled = lambda *a, **k: False
    return types.SimpleNamespace(
        Scheduler=Scheduler,
        AsyncScheduler=AsyncScheduler,
        Request=Request,
        RequestStatus=RequestStatus,
        CPUOffloadingManager=CPUOffloadingManager,
        tiering=tiering,
        ExampleSecondaryTierManager=ExampleSecondaryTierManager,
        ReqContext=offload.ReqContext,
        LookupResult=getattr(offload, "LookupResult", FOUND),
        step_end=getattr(offload, "ScheduleEndContext", max)((), ()),
        make_offload_key=offload.make_offload_key,
        KVCacheManager=KVCacheManager,
        interface=interface,
        bfloat16=torch.bfloat16,
        stubbed=finder.stubbed,
    )


def cache_configuration(real: types.SimpleNamespace, blocks: int) -> Any:
    """Return the configuration of a pool with the given number of usable blocks for full attention."""
    attention = real.interface.FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=real.bfloat16
    )
    group = real.interface.KVCacheGroupSpec(["layer"], attention)
    return real.interface.KVCacheConfig(num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[group])


def block_names(trace: Trace, request: int, blocks: int) -> list[str]:
    """Return the names of a request's first blocks: the trace's ids of full prompt blocks, its own else."""
    start, prompt = trace.id_offsets[request], int(trace.input_tokens[request]) // BLOCK
    ids = [int(trace.id_names[block]) for block in trace.block_ids[start : start + prompt]]
    return [f"{ids[k]}:0" if k < prompt else f"o{request}:{k}" for k in range(blocks)]


def request(real: types.SimpleNamespace, trace: Trace, number: int, unit: int = BLOCK) -> Any:
    """Return a request of a trace as vLLM's; the hash of ``unit`` tokens is the name of their last block."""
    n, output = int(trace.input_tokens[number]), int(trace.output_tokens[number])
    names = block_names(trace, number, (n + output) // BLOCK)

    def hasher(made: Any) -> list[bytes]:
        units = range(len(made.block_hashes), made.num_tokens // unit)
        return [names[(k + 1) * unit // BLOCK - 1].encode() for k in units]

    sampling = Record(max_tokens=output, min_tokens=0)
    priority = int(trace.priority[number]) if len(trace.priority) else 0
    arrival = float(trace.arrival_ns[number])
    return real.Request(
        f"{number:06d}", [0] * n, sampling, None, arrival_time=arrival, priority=priority, block_hasher=hasher
    )


def free_queue(manager: Any) -> str:
    """Return the SHA-256 of the keys of a manager's free blocks, front to back, a line each."""
    keys = [block.block_hash for block in manager.block_pool.free_block_queue.get_all_free_blocks()]
    # a group's number stands behind a key, in four bytes
    lines = ["-" if key is None else key[:-4].decode() for key in keys]
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
