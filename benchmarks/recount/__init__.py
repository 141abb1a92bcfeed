"""The figures of a running daemon, counted a second time from outside."""
