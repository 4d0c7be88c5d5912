"""Random changes of faces: first drawn as numbers, a function of (seed, side, position), then applied."""
