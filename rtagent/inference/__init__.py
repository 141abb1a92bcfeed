"""The worker that turns frames into actions."""
