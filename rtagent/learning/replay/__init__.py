"""Transitions out of the shared rings: found, chosen, and copied into batches.

May import `memory` and `config`.
"""
