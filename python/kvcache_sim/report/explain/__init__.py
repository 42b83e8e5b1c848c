"""Why a run came out as it did, in plain sentences with the numbers.

A sentence is one function of a ``Case`` that returns it, or None where its cause is absent; ``sentences``
lists them all. ``story`` tells one request event by event.

- ``break_even``     from which length on loading KV beats computing it again, tier by tier
- ``case``           what a sentence is told from: a run with the analyses that several sentences share
- ``hit_rate``       why the hit rate is what it is
- ``latency``        what TTFT is made of, and what made it long
- ``prefixes``       the global prefix store at the end of a run: seed 000's ``global_prefix_store``
- ``session_cache``  what the cache knew of one session, turn by turn
- ``tiers``          why a tier or a policy did or did not matter
- ``worst``          the requests that waited longest for their first token
- ``worst_text``     what ``kvsim explain --worst`` prints
"""
