"""Networks, and how their answers become actions.

May import `config` and `memory`.
"""
