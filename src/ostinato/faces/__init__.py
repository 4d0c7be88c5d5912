"""Faces: extracted-face files, alignment, masks, augmentation, the loader with its cache, and drawn people."""
