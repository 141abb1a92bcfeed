"""The process that turns frames into actions."""
