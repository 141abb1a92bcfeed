"""Algorithms: from a batch to a gradient, one module each, and their registry.

B is the number of transitions. The return of a transition is `rewards`, the discounted sum of the
rewards in its n ticks (or decisions), plus `discounts` = gamma**n times the value of its successor;
a terminal successor has no value. A truncated episode is not terminal: it bootstraps.
"""
