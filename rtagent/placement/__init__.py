"""Which part of a learning step runs on which unit, in which precision.

The profile measures, the program decides, and the learner carries it out. May import what lies
below `learning`; torch only in `profile` and what measures and executes, for a plan is made
without it.
"""
