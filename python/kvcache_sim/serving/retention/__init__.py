"""What requests say of the blocks they leave: a session is over, keep them so long, let them wait below.

- ``hints``  hints of a trace's rows, obeyed when a request is done: close, demote, a time to live
- ``pins``   pinned prompts: what a request leaves on its GPU is not evicted for a time
"""
