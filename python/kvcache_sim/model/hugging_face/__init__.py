"""Models from Hugging Face configurations: ``config.json`` as published with the weights.

- ``architectures``   supported architectures, with the readers of their attention and feed-forward
- ``attention``       attention from a configuration: keys and values per head, or latents
- ``configuration``   a Hugging Face ``config.json`` read as a model
- ``feed_forward``    feed-forward layers from a configuration
- ``fields``          field access of one configuration
- ``quantization``    formats of weights and KV from a checkpoint's ``quantization_config``
- ``recurrent``       layers with a recurrent state from a configuration
- ``searched``        layers that an architecture search made individually different (Nemotron-NAS)
"""
