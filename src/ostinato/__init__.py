"""Ostinato: a PyTorch training system that keeps going."""

__version__ = "0.1.0"
