"""Which part of a learning step runs on which core, in which precision.

A profile says what the parts take, the program finds the plan, and a runner carries it out. May
import what lies below; a plan is made without torch, and only `layers`, `recorder`, `second_core`
and `execution` load it.
"""
