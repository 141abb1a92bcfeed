"""Acting: the clock, inference processes and their staggering, engines, remote policies."""
