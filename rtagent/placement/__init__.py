"""Which part of a learning step runs on which core, in which precision.

A profile has the times of the parts, the program finds a plan, and a runner carries it out. May
import what lies below; a plan is made without torch, which only `layers`, `recorder`, `second_core`
and `execution` load.
"""
