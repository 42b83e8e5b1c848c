"""A simulated cluster that answers as a real one does: OpenAI's HTTP interface, vLLM's metrics and KV events.

- ``clock``       the wall clock, read nowhere else
- ``fleet``       the simulation run to wall-clock now, its requests and who listens to them
- ``prompts``     tokens to block ids, ids forgotten when nothing names them
- ``tokenizers``  texts to tokens: the user's tokenizer, or bytes
- ``answers``     the texts of answers
- ``openai``      bodies read and written as OpenAI's clients expect
- ``app``         the routes, limits and keys of the ASGI application
- ``metrics``     ``/metrics`` under vLLM's names
- ``events``      KV events as vLLM publishes them
- ``keeping``     the run directory that is left
- ``server``      all of it on a port until a signal comes

Only this room reads the wall clock. Its packages (extra ``serve``) are imported when it is used.
"""
