"""Makes the helpers of tests that train known here."""

from __future__ import annotations

from recognition_command import recognition
from training_fixtures import commands, face_cache, ostinato, people

__all__ = ["commands", "face_cache", "ostinato", "people", "recognition"]
