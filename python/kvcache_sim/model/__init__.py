"""What things cost: KV bytes a token, and the time of a scheduler step.

``models.load_model``, ``gpus.load_gpu`` and ``step_times.load_step_time`` open the packaged files by name.

- ``aiconfigurator``       step times from the measured kernels of ``aiconfigurator-core``
- ``attention``            kinds of attention: what a layer caches, weighs and computes
- ``attention_work``       what attention computes and reads in one step, over all layers of a model
- ``calibration``          measured iterations and kernels in, a step-time model with its error out
- ``catalog``              the packaged data files, by folder and name
- ``channels``             channel presets: latency, cost of a piece and bandwidth of real links
- ``cuda_graphs``          CUDA-graph padding: a small step runs as the next captured batch size
- ``dtypes``               number formats of weights and KV
- ``feed_forward``         kinds of feed-forward layers: dense, or a mixture of experts
- ``hosts``                host presets: what lies around a model's steps on the CPU of a real deployment
- ``hugging_face``         models from Hugging Face configurations
- ``kernel_rates``         what one GPU's kernels reach of its published rates
- ``kv_groups``            KV cache groups: how an engine lays a model's kinds of layers out in one pool
- ``kv_room``              how much KV a GPU holds beside weights and activations
- ``latent_attention``     attention over latents
- ``launch_time``          a step-time model whose long steps take at least as long
- ``layer_cache``          what one layer keeps of a sequence
- ``layer_group``          layers of a model that are alike
- ``layer_kernels``        the linear layers of one step of a model on each of the GPUs of a TP degree
- ``linear``               the linear source: a step's time from four costs spelled out
- ``links``                what an all-reduce among the GPUs of one machine takes
- ``memory``               whether a model's weights fit on its GPUs, and the most that they leave
- ``model_file``           a model as TOML: the packaged ones and a user's own
- ``model_spec``           a language model as a list of layer groups
- ``parametric``           the parametric source: a step's time from a handful of fitted coefficients
- ``rest_grid``            what a table's linear terms miss, by two counts, sampled on a grid
- ``roofline``             the roofline source: a step's time for any model on any GPU
- ``roofline_name``        the spelling of a roofline
- ``scaled``               a step-time model whose steps all take longer or shorter by factors
- ``sequence_time``        a step-time model with the host's time for each sequence of a step on top
- ``stated_errors``        how far a source of step times says it may be off, in factors on the true times
- ``step_time``            the time of one scheduler step in integer nanoseconds
- ``step_time_spellings``  how each source of step times is spelled
- ``templates``            files to start from: a model, a GPU, a link or a step-time set of one's own
- ``weight_count``         weights of a model by part, counted from the shapes of its layers
"""
