"""Sessions of agents on a provider's prompt cache: what they read, write and cost, and why a call read less.

- ``calls``  calls of sessions as logs have them, and what is predicted of each
- ``load``   logs of agents as calls
"""
