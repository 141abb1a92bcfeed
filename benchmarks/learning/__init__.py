"""Learning: the time of an update, and what is learned with it."""
