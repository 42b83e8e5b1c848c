"""A simulated cluster that answers as a real one does: OpenAI's HTTP interface, vLLM's metrics and KV events.

- ``clock``      the wall clock, read nowhere else
- ``fleet``      the simulation run to wall-clock now; ``ticket``: a request while it is served
- ``tokenizer``  texts to tokens; ``prompts``: tokens to block ids
- ``parsing``    bodies, ``generation``: what they ask for, ``refusals``: what is not done
- ``answers``    texts, ``chunks``: their JSON, ``reply``: each token when due, over ``event_stream``
- ``app``        routes, keys and limits of the application, which is Starlette's
- ``metrics``    ``/metrics`` under vLLM's names, ``gaps``: times between tokens
- ``events``     KV events as vLLM publishes them
- ``arrivals``   the log of arrivals, ``keeping``: the run directory that is left
- ``serving``    a scenario on its ports, ``server``: until a signal comes
- ``shadow``     a real engine's events beside other caches
- ``record``     a proxy before a real server that writes a trace
- ``lags``       by how much wall-clock time tokens were written after their simulated time
- ``protocol``   HTTP on a connection, as uvicorn reads it

Only this room reads the wall clock. Its packages (extra ``serve``) are imported when it is used.
"""
