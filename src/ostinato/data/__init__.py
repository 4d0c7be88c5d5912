"""Which samples come next, and random numbers, as functions of seed and position."""
