"""Requests in: readers of published traces, generators, sessions, tokens.

- ``block_names``         what names blocks: their keys, and the trace's ids that cover them
- ``ceiling``             what an unbounded cache would serve of a trace
- ``chat_template``       chats as one prompt: each message between marks
- ``context_window``      the context window of an engine over a trace
- ``generate``            workloads made from a seed: (seed 000, section 4)
- ``imports``             logs of production to traces: ``kvsim trace import``
- ``key_arrays``          the columns of a trace that give each block its key
- ``members``             what rows name beside their columns: parts of keys, models, adapters, hints, tenants
- ``missing_ids``         block ids for rows that name none, so that every request walks the same path
- ``rows``                rows of a trace chosen and ordered anew, its blocks and sessions numbered again
- ``sessions``            which request follows which, and which prompt goes on from which answer; jobs
- ``synthetic_prefixes``  prefixes for traces that name no blocks
- ``toolbox``             the trace toolbox: statistics, transforms, a writer
- ``trace``               a trace in columns: the one form in which requests live inside kvsim
"""
