"""``kvsim explain``: the main causes of a run's results, in sentences with numbers.

A sentence is a function of a ``Case`` that returns text, or None where its cause is absent; ``sentences``
lists them all. ``explanation`` describes one request event by event.

- ``break_even``     the lengths of prefixes whose KV loads faster than it is recomputed, and what hits save
- ``certainty``      the main figures with their intervals, as the run stored them
- ``case``           the input of a sentence: a run with the analyses that several sentences share
- ``claims``         what sentences claim: each with the experiment that finds it true
- ``experiments``    the settings that these experiments change
- ``explanation``    one request, event by event
- ``faults``         what faults took, and when TTFT was back
- ``hit_rate``       the hit rate's upper bound and the causes of its misses
- ``latency``        the parts of TTFT and the causes of a long tail
- ``prefixes``       the global prefix store at the end of a run: seed 000's ``global_prefix_store``
- ``sentences``      every sentence by topic, in printed order
- ``session_cache``  the cached state of one session, turn by turn
- ``tiers``          tiers, channels and policies with and without an effect
- ``worst``          the requests that waited longest for their first token
- ``worst_text``     the text of ``kvsim explain --worst``
"""
