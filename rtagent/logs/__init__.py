"""The log for people: its lines, their levels and formats, and the shortening of long texts."""
