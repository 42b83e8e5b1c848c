"""A simulated cluster served like a real one: OpenAI's HTTP interface, vLLM's metrics and KV events.

- ``clock``      the wall clock, read nowhere else
- ``fleet``      the simulation run to wall-clock now; ``ticket``: a request while it is served
- ``tokenizer``  texts to tokens; ``prompts``: tokens to block ids
- ``parsing``    bodies, ``generation``: their prompts and answers, ``refusals``: error responses
- ``rendering``  bodies of every API to tokens
- ``answers``    texts, ``chunks``: their JSON, ``reply``: each token when due, over ``event_stream``
- ``app``        routes, keys and limits of the Starlette application
- ``metrics``    ``/metrics`` under vLLM's names
- ``events``     KV events as vLLM publishes them
- ``arrivals``   the log of arrivals, ``run_output``: the run directory of a live run
- ``serving``    a scenario on its ports, ``server``: the HTTP server until a signal
- ``shadow``     a real engine's events compared with other caches
- ``record``     a proxy in front of a real server that writes a trace
- ``protocol``   HTTP on a connection, for uvicorn

Only this package reads the wall clock. Its dependencies (extra ``serve``) are imported on first use.
"""
