"""Models of cost: KV bytes per token, and the time of a scheduler step.

``model_file.load_model``, ``gpus.load_gpu`` and ``step_times.load_step_time`` open packaged files by name.

- ``adjusted``             adjusted step times: launches, time per sequence, factors
- ``attention``            kinds of attention: a layer's caches, weights and operations
- ``block_layout``         groups of layers in one pool of equal blocks
- ``capacity_band``        errors of the rules of KV capacity, and the estimate of CUDA graphs
- ``catalog``              the packaged data files, by folder and name
- ``channels``             channel presets: latency, cost per piece and bandwidth of real links
- ``computed_source``      step times whose code is found by name through an entry point
- ``dtypes``               number formats of weights and KV
- ``engine_memory``        settings of an engine that decide the memory left for KV, and its sum by parts
- ``hosts``                host presets: CPU time around the steps of a real deployment
- ``hugging_face``         models from Hugging Face configurations
- ``kv_groups``            KV cache groups: an engine's layout of a model's kinds of layers in one pool
- ``kv_concurrency``       blocks of a request, concurrency and logged tokens, by release of vLLM
- ``packed_groups``        groups of compressed latents: pages of several sizes side by side in one block
- ``kv_capacity``          KV capacity of a GPU after weights and activations
- ``latent_attention``     attention over latents
- ``layer_group``          groups of identical layers of a model
- ``linear``               the linear source: step time from four explicit costs
- ``links``                time of all-reduces and exchanges among the GPUs of one machine
- ``points``               points of a piecewise linear time: counts and ms
- ``prices``               prices and rules of providers' prompt caches, by model and date
- ``rank_work``            what data-parallel ranks share in a step: experts, exchange, agreement
- ``server_log``           a server's startup log: its settings and figures
- ``sglang_memory``        KV capacity by SGLang's rule
- ``shared_time``          that time by the tokens of the ranks, as the core takes it
- ``model_file``           models by name or file
- ``model_spec``           a language model as a list of layer groups, and the context that it states
- ``parametric``           the parametric source: step time from a few fitted coefficients
- ``releases``             releases of engines: each default and rule of capacity by release
- ``release_subject``      the machine and model that a release's values depend on
- ``residual_grid``        residuals of a table's linear terms, sampled on a grid of two counts
- ``format_rates``         rates that GEMMs and experts reach on a GPU, by format
- ``roofline``             the roofline source: step time for any model on any GPU
- ``roofline_name``        parser of a roofline's name
- ``run_errors``           whole runs that were measured, each with a simulation of it
- ``run_intervals``        stated intervals of a source by name, and of a figure of a run
- ``run_rule``             the rule that makes 90 % intervals of the errors of whole runs
- ``served_kernels``       sums of kernels as an engine runs them: sampler, clocks under load
- ``stages``               pipeline stages of a step: layers of each, the head, transfers between them
- ``stated_errors``        stated errors of step-time sources, as factors on the true times
- ``step_time``            the time of one scheduler step in integer nanoseconds
- ``step_time_file``       the file of a set: coefficients, its source, and the error on held-out rows
- ``step_times``           step-time models by name or file
- ``templates``            files to start from: a model, a GPU, a link or a step-time set
- ``vllm_memory``          KV capacity by vLLM's rule
"""
