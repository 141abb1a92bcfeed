"""Schedules for staggered inference processes, pure, and their simulator.

"Riemer et al." here is M. Riemer, G. Subbaraj, G. Berseth and I. Rish, "Realtime Reinforcement
Learning: Towards Rapid Asynchronous Deployment of Large Models". Of rtagent, imports only `config`
and `clock`.
"""
