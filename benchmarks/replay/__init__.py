"""The replay: adding, sampling, memory, and resizing, beside other implementations."""
