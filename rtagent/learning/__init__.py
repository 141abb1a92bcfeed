"""Learning from what really happened: ledger rows to transitions, losses, the learner process."""
