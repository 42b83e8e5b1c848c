"""Calibration: measured iterations and kernels in, a step-time model with its error out.

``rows`` reads iterations, ``kernels`` composes them from kernel times, ``split`` holds rows out, ``design``
is the form, ``fit`` solves it, ``accuracy`` judges it, ``shipped`` makes the packaged sets.
"""
