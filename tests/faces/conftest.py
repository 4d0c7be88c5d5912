"""Faces to test with: recorded landmarks, and face files made from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ostinato.faces.face_files import write_face
from ostinato.faces.metadata import FaceMetadata, FaceSource, StoredMask

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "face_geometry.json").read_text())["faces"]


@pytest.fixture(params=sorted(RECORDED))
def recorded_face(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One face with the numbers that another program found for it."""
    return RECORDED[request.param]


@pytest.fixture
def landmarks() -> np.ndarray:
    """(68, 2) float32 points of a real face in a 300 x 300 frame."""
    return np.array(RECORDED["portrait"]["landmarks"], np.float32)


@pytest.fixture
def make_metadata(landmarks: np.ndarray) -> Callable[..., FaceMetadata]:
    """Builds the metadata of a face; every part can be given."""

    def make(
        points: np.ndarray | None = None,
        version: float = 2.4,
        masks: dict[str, StoredMask] | None = None,
        **changes: Any,
    ) -> FaceMetadata:
        source = FaceSource("frame.png", "frame_0.png", source_frame_dims=(300, 300), alignments_version=version)
        points = landmarks if points is None else np.asarray(points, np.float32)
        return FaceMetadata(99, 88, 91, 89, points, source, masks=masks or {}, **changes)

    return make


@pytest.fixture
def picture() -> np.ndarray:
    """(96, 96, 3) uint8 RGB with structure at several scales and three different channels."""
    y, x = np.mgrid[0:96, 0:96].astype(float)
    waves = [np.sin(x / 5) * 60, np.cos(y / 7) * 60, np.sin((x + y) / 3) * 50]
    return np.clip(np.stack(waves, axis=2) + 128, 0, 255).astype(np.uint8)


@pytest.fixture
def write_sample(picture: np.ndarray, make_metadata: Callable[..., FaceMetadata]) -> Callable[..., Path]:
    """Writes a face file; metadata parts can be given, or ``metadata=None`` for a plain picture."""

    def write(path: Path, image: np.ndarray | None = None, **changes: Any) -> Path:
        metadata = changes.pop("metadata") if "metadata" in changes else make_metadata(**changes)
        write_face(path, picture if image is None else image, metadata)
        return path

    return write
