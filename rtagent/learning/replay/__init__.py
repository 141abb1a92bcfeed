"""Transitions out of the shared rings: indexed, chosen, and copied into batches."""
