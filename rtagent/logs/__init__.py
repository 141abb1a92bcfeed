"""The log for people: its lines, their levels and formats, and the shortening of long texts.

Imports nothing else of rtagent.
"""
