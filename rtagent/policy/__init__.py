"""Networks, and the way from what they answer to an action.

May import `config` and `memory`.
"""
