"""Prefill/decode disaggregation: a prompt is computed on one machine, its answer on another (semantics 5).

| file | idea |
|---|---|
| ``handover`` | one request's KV on its way: what it waits for, its hops, its times |
| ``sender`` | a prefill machine: announces what it has computed, holds it until it has been read |
| ``reception`` | a decode machine: reserves room, first come first served, and takes into the batch |
| ``pools`` | who prefills, who decodes, and the choice of a decode machine |

The way: prompt computed → decode machine chosen → it reserves a place, and room for what it lacks of the
prompt on its own GPU → transfer → the source lets go → the request joins the decode machine's batch. One that
is preempted there computes again there.
"""
