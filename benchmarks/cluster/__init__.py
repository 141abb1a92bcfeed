"""Learning on another machine: bytes on the wire, updates per second, faults."""
