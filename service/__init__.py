"""The HTTP service: a FastAPI application and its dashboard, in a process of their own.

It only reads shared memory; what changes the run goes to the supervisor as a command.
"""
