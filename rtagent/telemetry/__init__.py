"""Figures, events and curves: computed from shared memory, stored, and shown.

May import `r3`, `memory`, `staggering` and `processes`; never torch.
"""
