"""Requests: readers of published traces, generators, sessions, tokens.

- ``block_names``         keys of blocks, the trace's ids that cover them, and their tokens
- ``upper_bound``         hit tokens of a trace in an unbounded cache
- ``coarser_blocks``      blocks and chunks of several ids
- ``context_edits``       edits that agents make to their context
- ``context_window``      the context window of an engine applied to a trace
- ``generate``            workloads generated from a seed (seed 000, section 4)
- ``imports``             production logs to traces: ``kvsim trace import``
- ``key_arrays``          the columns of a trace that determine block keys
- ``lanes``               trees of a trace played on a number of lanes, and entries into their recordings
- ``members``             row members without a column: parts of keys, models, adapters, hints, tenants
- ``missing_ids``         block ids for rows without ids, so that every request is handled the same way
- ``prompts``             bodies of APIs as prompts, their rendering, and counts as vendors mean them
- ``rows``                selection and reordering of rows, with blocks and sessions renumbered
- ``sessions``            turns of sessions, prompts that continue earlier answers, and jobs
- ``synthetic_prefixes``  prefixes for traces without block ids
- ``toolbox``             the trace toolbox: statistics, transforms, a writer
- ``trace``               a trace in columns: the internal form of requests
"""
