"""What things cost: KV bytes a token, and the time of a scheduler step.

``model_file.load_model``, ``gpus.load_gpu`` and ``step_times.load_step_time`` open packaged files by name.

- ``adjusted``             step times changed: launches, time a sequence, factors
- ``aiconfigurator``       step times from the measured kernels of ``aiconfigurator-core``
- ``attention``            kinds of attention: what a layer caches, weighs and computes
- ``calibration``          measured iterations and kernels in, a step-time model with its error out
- ``catalog``              the packaged data files, by folder and name
- ``channels``             channel presets: latency, cost of a piece and bandwidth of real links
- ``dtypes``               number formats of weights and KV
- ``hosts``                host presets: what lies around a model's steps on the CPU of a real deployment
- ``hugging_face``         models from Hugging Face configurations
- ``kv_groups``            KV cache groups: how an engine lays a model's kinds of layers out in one pool
- ``kv_capacity``              how much KV a GPU holds beside weights and activations
- ``latent_attention``     attention over latents
- ``layer_group``          layers of a model that are alike
- ``linear``               the linear source: a step's time from four costs spelled out
- ``links``                what an all-reduce among the GPUs of one machine takes
- ``model_file``           models by name or file
- ``model_spec``           a language model as a list of layer groups
- ``parametric``           the parametric source: a step's time from a handful of fitted coefficients
- ``residual_grid``            what a table's linear terms miss, by two counts, sampled on a grid
- ``roofline``             the roofline source: a step's time for any model on any GPU
- ``roofline_name``        the spelling of a roofline
- ``stated_errors``        how far a source of step times says it may be off, in factors on the true times
- ``step_time``            the time of one scheduler step in integer nanoseconds
- ``step_times``           step-time models by name or file, and how each source is spelled
- ``templates``            files to start from: a model, a GPU, a link or a step-time set of one's own
"""
