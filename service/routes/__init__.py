"""The calls: one module for each group of them, what they share, and how they are documented.

May import `service.http` and `service.daemon`.
"""
