"""The experiments: one module each, with a docstring that says what is shown and an `EXPERIMENT`.

`rtagent experiment NAME` runs one; `benchmarks/experiment.py` says what they are made of. Modules
without an `EXPERIMENT` are for one or two of them.
"""
