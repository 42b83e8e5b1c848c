"""Prefill/decode disaggregation: prefill on one machine, decoding on another (semantics 5).

- ``pools``     the machines by role, and the choice of a decode machine
- ``decision``  requests that a decode machine serves whole
- ``rules``     the rules of ``handover.decide``
- ``of_vllm``   what is refused under vLLM's own scheduler

The hand-over itself is the core's (``rust/core/src/machine/handover/``, ``cluster/handover.rs``): prompt
computed → decode machine chosen, or the one of the request's arrival → it reserves blocks on its GPU for the
part of the prompt that it lacks → transfer → the source releases its blocks → the request joins the decode
machine's batch. A request preempted there is recomputed there.
"""
