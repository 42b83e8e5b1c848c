"""Arrivals, replicas, routers and the cluster around the machines that the core serves.

- ``batch_settings``    settings of the running batch, as the core takes them
- ``cluster``           requests arrive, are routed, served on their machine, and bring the next turn
- ``engine_rules``      the rules of engines' own schedulers, from the settings of a replica
- ``front_door``        the native arrival path: routing, queueing and what follows in the core
- ``handover``          a prompt is computed on one machine, its answer on another
- ``kept_prompts``      blocks that machines keep of finished requests
- ``listing``           each block of a hit in a running cluster
- ``machine``           the replicas of a cluster, put together on their machines' caches
- ``membership``        machines that come and go while requests are served
- ``models``            several models in one fleet
- ``native_cluster``    replicas of the core: it keeps all machines' events in one order
- ``queue``             the order of admission from the queue
- ``recorder``          the recorder of a run, as the serving layer calls it
- ``replica``           one engine instance, and its rules as the core takes them
- ``retention``         what requests say of the blocks they leave
- ``router``            the choice of a machine for each request
- ``schedule_log``      the schedule of an engine, step by step
- ``sequence``          a request as a cluster sees it: at its arrival, and when it is closed
- ``settings``          settings of the serving layer: the replica, a machine, the router, the cluster
- ``speculation``       speculative decoding
- ``step_tables``       tables of step times as the core reads them
- ``store_limits``      settings that ask of a machine's store what its kind cannot do are refused
- ``tenants``           tenants that share a fleet
- ``waiting_requests``  which requests wait for others to finish: the next turns of closed-loop clients
"""
