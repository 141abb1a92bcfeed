"""Text that others wrote, on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line in which every control character is a space.

    A policy, a peer or a file may say anything, and a terminal obeys escape sequences.
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)
