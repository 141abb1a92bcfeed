"""Networks, and how their answers become actions.

May import `config`, `errors` and `memory`.
"""
