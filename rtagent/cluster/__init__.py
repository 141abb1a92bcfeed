"""The learner is somewhere else: what samples at the edge, what travels, and what learns there.

The architecture is that of S. Morishima and H. Matsutani, An Efficient Distributed Reinforcement
Learning Architecture for Long-Haul Communication Between Actors and Learner, IEEE Access 12, 2024,
doi:10.1109/ACCESS.2024.3402835, Algorithms 4 and 5: the replay stays beside the world (a *buffer
node*), and only what was sampled travels. Its baseline, Algorithms 2 and 3, is here as well: every
experience travels, and the replay is at the learner. Ray carries it; nothing here but
`ray_learner.py`, `ray_session.py` and `ray_checks.py` knows Ray.
"""
