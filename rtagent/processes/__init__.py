"""The life of a process, whatever it does: how it starts, waits, reports and ends.

May import `memory`, `logs` and `files`; knows no role.
"""
