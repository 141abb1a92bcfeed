"""Makes a machine of one of the emulators."""

from __future__ import annotations

from rtagent.env.gameboy.machine import Machine
from rtagent.env.gameboy.rom_file import padded
from rtagent.errors import UserError


def switch_on(backend: str, image: bytes) -> Machine:
    """Switch a machine on.

    Args:
        backend: `gambatte`, or `pyboy`, which is slower but can run several times in a process.
        image: the cartridge.

    Raises:
        UserError: there is no such backend, or it is not installed.
        RuntimeError: gambatte, and this process runs one already.
    """
    if backend == "gambatte":
        from rtagent.env.gameboy.gambatte_machine import GameBoy

        return GameBoy(padded(image))
    if backend != "pyboy":
        raise UserError(f"env.kwargs.backend = {backend!r}: expected gambatte or pyboy")
    # PyBoy is optional, and loads SDL's bindings.
    from rtagent.env.gameboy.pyboy_machine import PyBoyMachine

    return PyBoyMachine(padded(image))
