"""The command ``ostinato``, one file per verb. Only this room prints, and only this room ends the process."""
