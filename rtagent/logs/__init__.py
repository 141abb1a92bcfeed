"""What people read in a log: its lines, their levels and formats, and long texts cut short.

Imports nothing else of rtagent.
"""
