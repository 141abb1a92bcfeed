"""Learning on another machine: what samples beside the world, what is sent, and the learner.

The architecture is that of S. Morishima and H. Matsutani, An Efficient Distributed Reinforcement
Learning Architecture for Long-Haul Communication Between Actors and Learner, IEEE Access 12, 2024,
doi:10.1109/ACCESS.2024.3402835, Algorithms 4 and 5: the replay stays beside the world, in a *buffer
node*, and only sampled transitions are sent. The replay can also be at the learner, as in the
paper's baseline, Algorithms 2 and 3: every experience is sent, and the learner keeps the newest;
the baseline replaces its replay as a whole. Calls go through Ray, which only `ray_learner.py`,
`ray_session.py` and `ray_checks.py` know.
"""
