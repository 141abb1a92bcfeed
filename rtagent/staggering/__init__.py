"""Schedules for staggered inference processes: pure functions of numbers."""
