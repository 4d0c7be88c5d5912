"""Options of going on after a number of the training was not finite."""

from __future__ import annotations

from ostinato.config.declaration import Options, option


class RecoveryOptions(Options):
    """What is done after a loss or a gradient was not a finite number."""

    nan_recovery: bool = option(
        False,
        group="recovery",
        help="""Go on without you when a loss is no finite number: go back to the last good saved state, lower the
        learning rate and train on, as `--recover` does once. It is for runs that nobody watches. Leave it off where
        you can look at the run: the cause may be a face or an option, and a lower rate only hides it.""",
    )
    nan_recovery_limit: int = option(
        3,
        group="recovery",
        ge=1,
        le=100,
        step=1,
        help="""How often a run may recover in its whole life, by itself or with `--recover`. After that it stops and
        says why. Raise it only after you have looked at the faces and the options; a run that needs many recoveries
        is ill.""",
    )
    nan_recovery_factor: float = option(
        0.5,
        group="recovery",
        ge=0.01,
        le=0.99,
        help="""By how much each recovery multiplies the learning rate: 0.5 halves it. Nearer to 1 changes less and
        may fail again; smaller is safer and learns more slowly from then on. Leave it alone unless recoveries
        follow each other closely.""",
    )
