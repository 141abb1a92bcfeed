"""The life of a process of any role: how it starts, waits, reports and ends.

May import `memory`, `config`, `logs` and `files`.
"""
