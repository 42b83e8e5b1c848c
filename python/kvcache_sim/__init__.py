"""kvsim: a discrete-event simulator of KV-cache and prefix-cache behaviour in LLM serving.

The floors of the package, top to bottom; imports go down only:

- ``cli``         one file a verb: parse, call, print
- ``report``, ``sweep``  read finished runs; run many
- ``scenario``, ``simulation``  validated YAML in, a finished ``Run`` out
- ``metrics``     what was measured: columns with units, recorder, summary
- ``serving``     sequences, batch, scheduler, replica, router, cluster
- ``cache``       block store, tiers, channels, policies, session and prefix views
- ``workload``, ``model``  requests in; what things cost
- ``engine``      the event loop
- ``errors``, ``units``, ``rng``
"""

__version__ = "0.1.0"
