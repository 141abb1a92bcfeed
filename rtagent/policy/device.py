"""The device that a setting means, or one line that says why it cannot be used."""

from __future__ import annotations

import torch

from rtagent.errors import UserError


def usable_device(setting: str, name: str) -> torch.device:
    """The device that a setting means.

    This may initialise CUDA, so only the process that will compute may call it, or one that ends
    before that process begins.

    Args:
        setting: cpu, cuda, cuda:N, or auto, which is the first GPU if torch can use one.
        name: of the setting, for the error.

    Raises:
        UserError: the device is not there, or torch was built without CUDA.
    """
    if setting == "auto":
        setting = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(setting)
    if device.type == "cpu":
        return device
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        release = torch.__version__.partition("+")[0]
        raise UserError(
            f"{name} = {setting!r}: torch {torch.__version__} is built without CUDA; use cpu, or "
            "install a build that has it: pip install --force-reinstall --index-url "
            f"https://pypi.org/simple torch=={release}"
        )
    found, number = torch.cuda.device_count(), device.index or 0
    if number >= found:
        raise UserError(f"{name} = {setting!r}: {found} CUDA devices are usable here; use cpu")
    return torch.device("cuda", number)
