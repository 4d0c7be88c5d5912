"""The one batch size of a run on several devices."""

from __future__ import annotations

from dataclasses import dataclass

from ostinato.errors import ArgumentValueError


@dataclass(frozen=True)
class DeviceBatch:
    """What is trained with.

    :param size: samples in one update, over all devices. One number for loader, session and screen.
    :param raised: whether it had to be raised to give every device a sample.
    :param better: the two sizes around it that fill all devices evenly, when it does not.
    :param message: a sentence for the user; empty when there is nothing to say.
    """

    size: int
    raised: bool = False
    better: tuple[int, int] | None = None
    message: str = ""


def batch_size_for_devices(asked: int, devices: int) -> DeviceBatch:
    """The batch size that is really used, from the one asked for.

    A batch smaller than the number of devices is raised to it. One that is no multiple stays, and the neighbours that
    would fill all devices are named.

    :raises ArgumentValueError: either number is below 1.
    """
    if asked < 1 or devices < 1:
        raise ArgumentValueError(f"Batch size {asked} on {devices} devices makes no sense; both must be at least 1.")
    if asked < devices:
        text = f"Batch size {asked} is less than the number of devices; it was raised to {devices}."
        return DeviceBatch(devices, raised=True, message=text)
    if asked % devices == 0:
        return DeviceBatch(asked)
    lower = asked // devices * devices
    text = (
        f"Batch size {asked} cannot be shared evenly by {devices} devices, so some of them wait. "
        f"Better: {lower} or {lower + devices}."
    )
    return DeviceBatch(asked, better=(lower, lower + devices), message=text)
