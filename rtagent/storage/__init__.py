"""What outlives a run: checkpoints, the replay on disk, demonstrations; without torch."""
