"""What outlives a run: checkpoints, the replay on disk, demonstrations.

May import `memory`, `telemetry`, `processes`, `files`; never torch.
"""
