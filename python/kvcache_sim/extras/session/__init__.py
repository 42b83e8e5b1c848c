"""Sessions of agents on a provider's prompt cache: what they read, write and cost, and why a call read less.

- ``calls``    calls of sessions as logs have them, and what is predicted of each
- ``causes``   the cause of a call that read less
- ``load``     logs of agents as calls
- ``predict``  what a provider's cache does with each call
- ``prompts``  prompts as paths of blocks in a cache, and their tokens
- ``sized``    whole prompts of calls with the tokens of each block; calls of edited prompts
- ``what_if``  the bill of the same sessions with one thing changed
"""
