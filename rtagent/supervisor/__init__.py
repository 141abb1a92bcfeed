"""The process that owns all others: it brings the run from its state to the desired state.

May import everything but what acts and learns (`env`, `inference`, `learning`, `policy`), and
never torch.
"""
