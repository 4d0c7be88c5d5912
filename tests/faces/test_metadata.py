from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ostinato.faces.metadata import (
    FaceMetadata,
    FaceSource,
    MetadataError,
    StoredMask,
    parse_metadata,
    render_metadata,
)

Make = Callable[..., FaceMetadata]


def _tree(**changes: Any) -> dict[str, Any]:
    """The dictionary of a current face; a change of None takes the key out, by ``level__key``."""
    disc = zlib.compress(bytes(64 * 64))
    tree: dict[str, Any] = {
        "alignments": {
            "x": 1,
            "y": -2,
            "w": 30,
            "h": 40,
            "landmarks_xy": [[float(i), i / 2] for i in range(68)],
            "mask": {
                "vgg-clear": {
                    "mask": disc,
                    "affine_matrix": [[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]],
                    "interpolator": 1,
                    "stored_size": 64,
                    "stored_centering": "head",
                }
            },
            "identity": {"t-face": [0.5, -0.25]},
        },
        "source": {
            "alignments_version": 2.4,
            "original_filename": "clip_000012_1.png",
            "face_index": 1,
            "source_filename": "clip_000012.mp4",
            "source_is_video": True,
            "source_frame_dims": (480, 560),
        },
    }
    for path, value in changes.items():
        *levels, key = path.split("__")
        target = tree
        for level in levels:
            target = target[level.replace("vgg", "vgg-clear")]
        if value is DELETE:
            del target[key]
        else:
            target[key] = value
    return tree


DELETE = object()


def test_reads_every_field() -> None:
    face = parse_metadata(repr(_tree()))
    assert (face.x, face.y, face.w, face.h) == (1, -2, 30, 40)
    assert face.landmarks.shape == (68, 2)
    assert face.landmarks.dtype == np.float32
    mask = face.masks["vgg-clear"]
    assert (mask.stored_size, mask.stored_centering, mask.interpolator) == (64, "head", 1)
    assert np.array_equal(mask.affine_matrix, [[1, 0, 2], [0, 1, 3], [0, 0, 1]])
    assert mask.pixels().shape == (64, 64)
    assert face.identity["t-face"].tolist() == [0.5, -0.25]
    assert face.source == FaceSource("clip_000012.mp4", "clip_000012_1.png", 1, True, (480, 560), 2.4)
    assert face.centering == "head"


def test_tuples_and_three_rows_mean_the_same() -> None:
    listed = parse_metadata(repr(_tree()))
    other = _tree(
        alignments__landmarks_xy=tuple((float(i), i / 2) for i in range(68)),
        alignments__mask__vgg__affine_matrix=((1.0, 0.0, 2.0), (0.0, 1.0, 3.0), (0.0, 0.0, 1.0)),
        source__source_frame_dims=[480, 560],
    )
    assert render_metadata(parse_metadata(repr(other))) == render_metadata(listed)


def test_masks_before_the_centering_was_stored_are_face_centred() -> None:
    face = parse_metadata(repr(_tree(alignments__mask__vgg__stored_centering=DELETE, source__alignments_version=2.1)))
    assert face.masks["vgg-clear"].stored_centering == "face"


@pytest.mark.parametrize("version", [2.1, 2.2, 2.3, 2.4, 2.5, 3])
def test_newer_versions_are_head_centred(version: float) -> None:
    assert parse_metadata(repr(_tree(source__alignments_version=version))).centering == "head"


def test_version_one_is_legacy_centred_and_knows_no_frame_size() -> None:
    changes = {"source__alignments_version": 1.0, "source__source_frame_dims": None, "alignments__identity": DELETE}
    face = parse_metadata(repr(_tree(**changes)))
    assert face.centering == "legacy"
    assert face.source.source_frame_dims is None
    assert face.identity == {}


def test_what_old_versions_lack_is_filled_in() -> None:
    removed = ["alignments__mask", "alignments__identity", "source__source_frame_dims", "source__source_is_video"]
    face = parse_metadata(repr(_tree(**dict.fromkeys(removed, DELETE))))
    assert (face.masks, face.identity, face.source.source_frame_dims, face.source.source_is_video) == (
        {},
        {},
        None,
        False,
    )


def test_unknown_keys_are_kept_and_written_back() -> None:
    extra = {
        "alignments__thumb": (1, [2, {"x": b"\x00'\""}]),
        "source__note": "ä\n",
        "alignments__mask__vgg__colour": None,
    }
    tree = _tree(extension={"deep": [1.5, True]}, **extra)
    written = parse_metadata(render_metadata(parse_metadata(repr(tree))))
    assert written.extra == {"thumb": (1, [2, {"x": b"\x00'\""}])}
    assert written.source.extra == {"note": "ä\n"}
    assert written.masks["vgg-clear"].extra == {"colour": None}
    assert written.extra_top == {"extension": {"deep": [1.5, True]}}


@pytest.mark.parametrize("count", [4, 98])
def test_four_and_98_points_are_read(count: int) -> None:
    points = [[float(i), 1.0] for i in range(count)]
    assert parse_metadata(repr(_tree(alignments__landmarks_xy=points))).landmarks.shape == (count, 2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"alignments": DELETE}, "lacks 'alignments'"),
        ({"source": DELETE}, "lacks 'source'"),
        ({"alignments__x": DELETE}, "lacks 'x'"),
        ({"alignments__landmarks_xy": DELETE}, "lacks 'landmarks_xy'"),
        ({"alignments": [1]}, "a dictionary"),
        ({"alignments__x": "1"}, "'x' of alignments should be a whole number"),
        ({"alignments__x": True}, "should be a whole number"),
        ({"alignments__x": 1.5}, "should be a whole number"),
        ({"alignments__w": 10**12}, "31 bits"),
        ({"alignments__landmarks_xy": [[1.0, 2.0]] * 51}, "51 x 2"),
        ({"alignments__landmarks_xy": [[1.0, 2.0, 3.0]] * 26}, "26 x 3"),
        ({"alignments__landmarks_xy": [1.0] * 136}, "136"),
        ({"alignments__landmarks_xy": []}, "0;"),
        ({"alignments__landmarks_xy": [[1.0], [1.0, 2.0]]}, "differ in length"),
        ({"alignments__landmarks_xy": [["a", "b"]] * 68}, "numbers and nothing else"),
        ({"alignments__landmarks_xy": [[None, 1.0]] * 68}, "numbers and nothing else"),
        ({"alignments__landmarks_xy": [[True, False]] * 68}, "numbers and nothing else"),
        ({"alignments__landmarks_xy": [[10**38 * 9, 1]] * 68}, "numbers and nothing else|not finite"),
        ({"alignments__landmarks_xy": [[1e39, 1.0]] * 68}, "not finite"),
        ({"alignments__landmarks_xy": "x"}, "list of numbers"),
        ({"alignments__landmarks_xy": [[5.0, 5.0]] * 68}, "one spot"),
        ({"alignments__mask": []}, "a dictionary"),
        ({"alignments__mask": {1: {}}}, "should be text"),
        ({"alignments__mask__vgg": 1}, "should be a dictionary"),
        ({"alignments__mask__vgg__mask": "text"}, "a byte string"),
        ({"alignments__mask__vgg__mask": DELETE}, "lacks 'mask'"),
        ({"alignments__mask__vgg__affine_matrix": [[1.0, 2.0], [3.0, 4.0]]}, "2 x 3 or 3 x 3"),
        ({"alignments__mask__vgg__stored_size": 0}, "1 to"),
        ({"alignments__mask__vgg__stored_size": 10**6}, "1 to"),
        ({"alignments__mask__vgg__stored_size": 64.0}, "1 to"),
        ({"alignments__mask__vgg__stored_centering": "nose"}, "legacy, face, head"),
        ({"alignments__mask__vgg__stored_centering": ["head"]}, "legacy, face, head"),
        ({"alignments__mask": {str(i): 0 for i in range(65)}}, "at most 64"),
        ({"alignments__identity": {"a": [[1.0]]}}, "one list of numbers"),
        ({"alignments__identity": {"a": ["x"]}}, "numbers and nothing else"),
        ({"source__alignments_version": "2.4"}, "a version"),
        ({"source__alignments_version": True}, "a version"),
        ({"source__alignments_version": 0}, "a version"),
        ({"source__source_filename": b"x"}, "should be text"),
        ({"source__source_is_video": 1}, "True or False"),
        ({"source__source_frame_dims": (1, 2, 3)}, "height, width"),
        ({"source__source_frame_dims": 480}, "height, width"),
    ],
)
def test_wrong_fields_are_refused_with_their_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        parse_metadata(repr(_tree(**changes)))


@pytest.mark.parametrize("text", ["[]", "None", "{}", "{'alignments': array([1])}", "", "not a literal", "{" * 1000])
def test_texts_that_are_no_metadata_are_refused(text: str) -> None:
    with pytest.raises(MetadataError):
        parse_metadata(text)


def test_a_landmark_that_is_not_finite_is_not_written(make_metadata: Make, landmarks: np.ndarray) -> None:
    for value in (np.nan, np.inf, -np.inf):
        broken = landmarks.copy()
        broken[3, 1] = value
        with pytest.raises(MetadataError, match=r"landmarks_xy holds .* not finite"):
            render_metadata(make_metadata(broken))


def test_values_that_are_no_plain_data_are_not_written(make_metadata: Make) -> None:
    face = make_metadata()
    for extra in ({"a": np.float32(1)}, {"a": object()}, {1.5: 2}, {"a": [float("nan")]}):
        with pytest.raises(MetadataError):
            render_metadata(replace(face, extra=extra))


def test_written_form_suits_strict_readers(make_metadata: Make) -> None:
    mask = StoredMask.pack(np.zeros((64, 64), np.uint8), np.eye(3), "face")
    text = render_metadata(make_metadata(masks={"custom_face": mask}))
    tree = eval(text, {"__builtins__": {}})
    assert set(tree) == {"alignments", "source"}
    assert set(tree["alignments"]) == {"x", "y", "w", "h", "landmarks_xy", "mask", "identity"}
    assert set(tree["alignments"]["mask"]["custom_face"]) == {
        "mask",
        "affine_matrix",
        "interpolator",
        "stored_size",
        "stored_centering",
    }
    assert tree["alignments"]["mask"]["custom_face"]["affine_matrix"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert tree["source"]["source_frame_dims"] == [300, 300]


_TEXT = repr(_tree())


@given(st.lists(st.tuples(st.integers(0, len(_TEXT)), st.integers(0, 9), st.text(max_size=6)), min_size=1, max_size=4))
def test_a_damaged_text_is_read_or_refused_and_nothing_else(edits: list[tuple[int, int, str]]) -> None:
    text = _TEXT
    for position, removed, inserted in edits:
        text = text[:position] + inserted + text[position + removed :]
    with contextlib.suppress(MetadataError):
        parse_metadata(text)


@given(hnp.arrays(np.float32, (68, 2), elements=st.floats(-1e6, 1e6, width=32)), st.binary(max_size=300), st.text())
def test_round_trip_keeps_every_bit(points: np.ndarray, packed: bytes, name: str) -> None:
    mask = StoredMask(packed, np.eye(3, dtype=np.float32), 3, 128, "face")
    source = FaceSource(name, name + "_0.png", 3, True, None, 2.3)
    face = FaceMetadata(-5, 0, 7, 9, points, source, masks={name: mask}, identity={name: points[:, 0]})
    assume((points != points[0]).any())
    again = parse_metadata(render_metadata(face))
    assert again.landmarks.tobytes() == points.tobytes()
    assert again.masks[name].compressed == packed
    assert np.array_equal(again.identity[name], points[:, 0])
    assert again.source == source


def test_a_packed_mask_unpacks_to_itself() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (70, 70), np.uint8)
    mask = StoredMask.pack(pixels, np.eye(3), "head")
    assert np.array_equal(mask.pixels(), pixels)
    with pytest.raises(MetadataError, match="square and uint8"):
        StoredMask.pack(pixels[:10], np.eye(3), "head")


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (b"", "unpacks to 0 bytes"),
        (b"garbage", "cannot be unpacked"),
        (zlib.compress(bytes(64 * 64 - 1)), "unpacks to 4095"),
        (zlib.compress(bytes(64 * 64 + 1)), "more than 4096"),
        (zlib.compress(bytes(64 * 64))[:-2], "unpacks to 4096"),
    ],
)
def test_damaged_masks_are_refused(packed: bytes, reason: str) -> None:
    mask = StoredMask(packed, np.eye(3, dtype=np.float32), 1, 64, "face")
    with pytest.raises(MetadataError, match=reason):
        mask.pixels()


def test_a_bomb_unfolds_to_no_more_than_a_mask() -> None:
    bomb = zlib.compress(bytes(50 * 1024 * 1024), 9)
    mask = StoredMask(bomb, np.eye(3, dtype=np.float32), 1, 128, "face")
    tracemalloc.start()
    with pytest.raises(MetadataError, match="more than 16384"):
        mask.pixels()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # zlib keeps a copy of the input it has not used yet; the output is what a bomb would make large.
    assert peak < 2 * len(bomb) + 128 * 128 * 2
