"""Connections, who may ask, and how answers and refusals look.

May import `service.daemon`; knows no call.
"""
