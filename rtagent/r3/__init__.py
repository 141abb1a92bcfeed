"""Learning within a deadline and a memory budget (R3): equations, controller, coordinator.

May import `memory` and `processes`; never torch.
"""
