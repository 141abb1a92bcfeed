"""The service's access to the daemon: it reads shared memory and sends commands over a pipe.

Knows nothing of HTTP.
"""
