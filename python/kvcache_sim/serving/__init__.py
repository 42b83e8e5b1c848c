"""Arrivals, replicas, routers and the cluster around the machines that the core serves.

- ``batch_settings``    settings of the running batch, as the core takes them
- ``cluster``           arrival, routing and closing of requests, and the next turns of closed-loop clients
- ``engine_rules``      rules of vLLM's and SGLang's schedulers, from the settings of a replica
- ``native_arrivals``   the native arrival path: routing, queueing and serving in the core
- ``handover``          prefill on one machine, decoding on another
- ``kept_prompts``      blocks that machines keep of finished requests
- ``lanes``             plays that start when others have ended, and limits of idle time
- ``listing``           each block of a hit in a running cluster
- ``machine``           construction of the replicas on their machines' caches
- ``membership``        machines that join, drain or fail while requests are served
- ``models``            several models in one fleet
- ``native_cluster``    replicas whose events the core keeps in one order
- ``queue``             the order of admission from the queue
- ``recorder``          the recorder of a run, as the serving layer calls it
- ``replica``           one engine instance, and its rules as the core takes them
- ``retention``         retention hints of requests
- ``router``            the choice of a machine for each request
- ``schedule_log``      the schedule of an engine, step by step
- ``sequence``          a request at its arrival and after it is closed
- ``settings``          settings of the serving layer: the replica, a machine, the router, the cluster
- ``speculation``       speculative decoding
- ``step_tables``       tables of step times as the core reads them
- ``store_limits``      refusal of settings that a machine's kind of store does not support
- ``tenants``           tenants that share a fleet
- ``waiting_requests``  requests that wait for others to finish: next turns of closed-loop clients
"""
