"""Prefill/decode disaggregation: a prompt is computed on one machine, its answer on another (semantics 5).

``pools`` has the machines by role, and the choice of a decode machine. The hand-over itself is the core's
(``rust/core/src/machine/handover/``, ``cluster/handover.rs``): prompt computed → decode machine chosen → it
reserves room for what it lacks of the prompt on its own GPU → transfer → the source is released → the request
joins the decode machine's batch. A request that is preempted there computes again there.
"""
