"""Learning from what was executed: ledger rows to transitions, losses, the learner process."""
