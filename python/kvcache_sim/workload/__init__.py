"""Requests in: readers of published traces, generators, sessions, tokens.

- ``block_names``         what names blocks: their keys, and the trace's ids that cover them
- ``block_tokens``        the tokens of a block
- ``ceiling``             what an unbounded cache would serve of a trace
- ``chat_template``       chats as one prompt: each message between marks
- ``context_window``      the context window of an engine over a trace
- ``extra_keys``          members of a trace's rows that are part of every block's key
- ``generate``            workloads made from a seed: one file a kind (seed 000, section 4)
- ``history``             traces whose rows hold the new input of a turn only
- ``imports``             logs of production to traces: ``kvsim trace import``
- ``jobs``                jobs of a trace: requests that belong together, as one waits for another
- ``key_arrays``          the columns of a trace that give each block its key
- ``missing_ids``         block ids for rows that name none, so that every request walks the same path
- ``named``               what each request names by a member of its row: a model, an adapter
- ``retention``           what the rows of a trace say of the blocks that their requests leave
- ``rows``                rows of a trace chosen and ordered anew, its blocks and sessions numbered again
- ``synthetic_prefixes``  prefixes for traces that name no blocks
- ``tenants``             who sent each request, by a member of the trace's rows
- ``toolbox``             the trace toolbox: statistics, transforms, a writer
- ``trace``               a trace in columns: the one form in which requests live inside kvsim
"""
