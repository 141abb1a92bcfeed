"""Faults, random changes, hostile peers and load, against a daemon that must go on."""
