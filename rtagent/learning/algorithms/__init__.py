"""Algorithms: from a batch to a gradient, one module each, and the registry of them.

B is the number of transitions. What a transition's action is worth is `rewards`, the discounted sum
of what came in its n ticks (or decisions), plus `discounts` = gamma**n times the value of its
successor; a terminal successor has none. A truncated episode is not terminal: it bootstraps.
"""
