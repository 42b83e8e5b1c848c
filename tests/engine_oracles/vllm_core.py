"""vLLM's own scheduler, cache manager and offloading manager from its wheel, on a machine without a GPU.

Stood in for: torch, the configuration (a record of the values set here), model runner, structured output, statistics,
metrics, connectors. Decisions are the wheel's.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

from kvcache_sim.workload.trace import Trace

from engine_oracles import stubs
from engine_oracles.streams import lines_digest, tokens_of
from engine_oracles.stubs import Fields, Real, Record

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
        "exceptions",
        "v1.engine.async_llm",
        "v1.engine.exceptions",
        "v1.engine.output_processor",
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
        "v1.simple_kv_offload",
        "v1.simple_kv_offload.manager",
        "v1.simple_kv_offload.metadata",
        "v1.simple_kv_offload.sizing",
        "utils.math_utils",
        *(
            f"distributed.kv_transfer.kv_connector.v1.{name}"
            for name in (
                "base",
                "lmcache_connector",
                "nixl.base_scheduler",
                "nixl.connector",
                "nixl.metadata",
                "nixl.pull_scheduler",
                "offloading.common",
                "offloading.config",
                "offloading.events",
                "offloading.scheduler",
                "offloading_connector",
                "simple_cpu_offload_connector",
            )
        ),
    )
)
_PACKAGES = ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched", "vllm.utils")
#: Packages that have every name, and real modules.
_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1"
_NAMED = (
    "vllm.v1.engine",
    "vllm.distributed",
    *(f"vllm.distributed.kv_transfer{part}" for part in ("", ".kv_connector")),
)


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


#: A look-up's answers before vLLM named them.
FOUND = Fields(HIT=True, HIT_PENDING=None)


def load(wheel: Path) -> Real:
    """Import the classes from an unpacked wheel."""
    stubs.name_packages(wheel, *_PACKAGES)
    stubs.name_packages(
        wheel, *_NAMED, _CONNECTOR, f"{_CONNECTOR}.offloading", f"{_CONNECTOR}.nixl", kind=Named
    )
    finder = Finder(("torch", "vllm", "msgspec", "cbor2", "xxhash", "regex", "cloudpickle", "zmq"), REAL)
    sys.meta_path.insert(0, finder)
    sys.path.append(str(wheel))
    length = {"length_from_prompt_token_ids_or_embeds": lambda ids, _: len(ids)}
    vars(sys.modules["vllm.utils"]).update(length)
    import torch
    import vllm.envs

    vllm.envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = None
    vllm.envs.VLLM_NIXL_SIDE_CHANNEL_PORT = 5600

    torch.dtype = type("dtype", (str,), {})
    torch.bfloat16, torch.float32, torch.uint8 = map(torch.dtype, ("bf16", "fp32", "u8"))
    import vllm.exceptions as exceptions
    import vllm.utils.torch_utils as sizes
    import vllm.v1.metrics.stats as statistics
    import vllm.v1.utils as own

    statistics.KV_FETCH_STAGES = ()

    sizes.get_dtype_size = lambda dtype: 2
    own.ConstantList = lambda tokens: tokens
    own.record_function_or_nullcontext = lambda name: contextlib.nullcontext()
    import vllm.v1.structured_output.request as grammar

    grammar.StructuredOutputRequest = Fields(from_sampling_params=lambda params: None)
    import vllm.v1.core.kv_cache_coordinator as coordinator
    import vllm.v1.core.single_type_kv_cache_manager as managers
    import vllm.v1.kv_cache_interface as interface
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import OutputProcessor
    from vllm.v1.kv_offload import base as offload
    from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
    from vllm.v1.kv_offload.tiering import manager as tiering
    from vllm.v1.kv_offload.tiering.example.manager import ExampleSecondaryTierManager
    from vllm.v1.request import Request, RequestStatus

    managers.register_all_kvcache_specs(None)
    coordinator.partial_hash_hits_enabled = lambda *a, **k: False
    return Real(
        Scheduler=Scheduler,
        AsyncScheduler=AsyncScheduler,
        AsyncLLM=AsyncLLM,
        exceptions=exceptions,
        OutputProcessor=OutputProcessor,
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


def cache_configuration(real: Real, blocks: int) -> Any:
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


def request(real: Real, trace: Trace, number: int, unit: int = BLOCK) -> Any:
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
        f"{number:06d}",
        tokens_of(trace, number, n),
        sampling,
        None,
        arrival_time=arrival,
        priority=priority,
        block_hasher=hasher,
    )


def bare_request(real: Real, number: int, prompt: int, hashes: list[bytes]) -> Record:
    """Return a request as the cache manager reads it."""
    return Record(
        request_id=str(number),
        num_tokens=prompt,
        num_prompt_tokens=prompt,
        num_computed_tokens=0,
        block_hashes=hashes,
        num_in_flight_tokens=0,
        shared_prefix_boundary=0,
        skip_reading_prefix_cache=False,
        status=real.RequestStatus.WAITING,
        num_preemptions=0,
        all_token_ids=[],
        mm_features=[],
    )


def evictions_of(manager: Any) -> Counter[str]:
    """Return a count, under ``blocks``, of the blocks of a manager's pool that lose their keys from now on."""
    count = Counter[str]()
    evict = manager.block_pool._maybe_evict_cached_block

    def counted(block: Any) -> bool:
        gone: bool = evict(block)
        count["blocks"] += gone
        return gone

    manager.block_pool._maybe_evict_cached_block = counted
    return count


def free_queue(manager: Any) -> str:
    """Return the SHA-256 of the keys of a manager's free blocks, front to back, a line each."""
    keys = [block.block_hash for block in manager.block_pool.free_block_queue.get_all_free_blocks()]
    # a group's number stands behind a key, in four bytes
    lines = ["-" if key is None else key[:-4].decode() for key in keys]
    return lines_digest(lines)
