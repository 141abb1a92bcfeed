"""The process that owns all others: it moves what is towards what should be.

May import everything but what acts and learns (`env`, `inference`, `learning`, `policy`), and
never torch.
"""
