"""Drawn faces: people made of a few numbers, seen in any pose, expression and light, with exact landmarks.

Any identity can be drawn in any state, so the right answer of a face swap is known: it is the other identity in the
same state.
"""

from ostinato.faces.drawn.drawing import DrawnFace, draw_face, draw_frame, frame_landmarks, true_swap
from ostinato.faces.drawn.folder import drawn_metadata, write_drawn_folder
from ostinato.faces.drawn.identity import BEARDS, DEMO_IDENTITIES, HAIR_STYLES, DrawnIdentity
from ostinato.faces.drawn.state import FaceState

__all__ = [
    "BEARDS",
    "DEMO_IDENTITIES",
    "HAIR_STYLES",
    "DrawnFace",
    "DrawnIdentity",
    "FaceState",
    "draw_face",
    "draw_frame",
    "drawn_metadata",
    "frame_landmarks",
    "true_swap",
    "write_drawn_folder",
]
