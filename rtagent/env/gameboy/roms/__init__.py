"""Cartridges that come with rtagent, each in a folder with its source."""
