"""A policy that runs on another machine: the protocol, its client, and its server.

The protocol is that of openpi's policy servers: a websocket, messages of msgpack with NumPy arrays,
and metadata as the server's first message.
"""
