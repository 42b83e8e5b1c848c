"""Calibration: step-time models fitted to measured iterations and kernels, with their errors.

``rows`` reads iterations and holds some out for the errors, ``kernels`` composes iterations from kernel
times, ``design`` is the form, ``fit`` solves it, ``shipped`` creates the packaged sets.

- ``choice``         choice of the form of step times for given rows
- ``closed_loop``    a closed loop of clients against one engine, step by step, with measured kernels
- ``command``        the fits of ``kvsim calibrate``
- ``coverage``       measured runs left out one by one: how often stated intervals hold the truth
- ``csv_table``      columns of a CSV of measurements, with checks of rows and numbers
- ``families``       the packaged families of topologies, judged on topologies left out
- ``family``         sets of unmeasured topologies by name
- ``fit_picture``    the picture of a fit: each iteration's predicted time against its measured one
- ``host_fit``       a host's times from requests alone, over a source that lacks them
- ``request_fit``    a step-time set from requests alone
- ``request_steps``  the steps behind a log of requests
- ``runs``           runs of steps of which only the total time is measured, compilation, and waits
- ``server_runs``    real servers listed by ``aiconfigurator-core``
- ``servers``        real servers compared with measured kernels, with fitted host costs
- ``timed``          a log as times and lengths, where it has all that a fit of step times needs
- ``topologies``     a set of an unmeasured topology, from a file of several
- ``transfer``       models of unmeasured deployments from measured ones
- ``aiconfigurator``  step times from the measured kernels of ``aiconfigurator-core``
- ``unsplit_kv``     FlashAttention 2's threshold of split KV, and the cost of the longest sequence from there
"""
