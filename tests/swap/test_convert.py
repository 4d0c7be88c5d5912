"""Converting folders of faces, with and without their frames; odd inputs are done or named, originals stay."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from ostinato.config import InitializationOptions, ModelOptions, NetworkOptions
from ostinato.errors import BadInputError, OstinatoError
from ostinato.faces.drawn import DEMO_IDENTITIES, FaceState, draw_face, draw_frame, drawn_metadata, write_drawn_folder
from ostinato.faces.face_files import read_face_header, write_face
from ostinato.faces.metadata import render_metadata
from ostinato.faces.sample import CropSettings
from ostinato.swap import convert as convert_module
from ostinato.swap.convert import ConvertResult, convert_faces
from ostinato.swap.models import build_model
from ostinato.swap.provenance import SourceType, read_provenance

CROP = CropSettings(32, coverage=0.9)
A, B = DEMO_IDENTITIES["a"], DEMO_IDENTITIES["b"]


class _Grey:
    """A model that draws one grey over the whole crop, and notes the sizes of its batches."""

    def __init__(self, level: float = 0.5, *, mask: float | None = None) -> None:
        self.input_size = 32
        self.output_sizes = (24, 48)
        self.level = level
        self.mask = mask
        self.batches: list[int] = []

    def __call__(self, faces: Tensor) -> list[Tensor]:
        assert faces.shape[1:] == (3, 32, 32)
        assert faces.dtype == torch.float32
        assert 0 <= float(faces.min()) <= float(faces.max()) <= 1
        self.batches.append(len(faces))
        outputs = [torch.full((len(faces), 3, size, size), self.level) for size in self.output_sizes]
        if self.mask is not None:
            outputs.append(torch.full((len(faces), 1, 48, 48), self.mask))
        return outputs


def _convert(faces: Path, out: Path, **given: object) -> ConvertResult:
    arguments: dict = {"crop": CROP, "mask": None, "direction": "a_to_b", "batch_size": 4, **given}
    return convert_faces(arguments.pop("model", _Grey()), faces, out, **arguments)


def _checksums(*folders: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _read(path: Path) -> np.ndarray:
    return cv2.imread(str(path))[..., ::-1]


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    write_drawn_folder(tmp_path / "faces", A, 5, seed=1, size=96, frames=tmp_path / "frames")
    return tmp_path / "faces"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_every_face_gets_a_swapped_one_of_its_size_with_its_metadata_and_the_synthetic_mark(
    faces: Path, out: Path
) -> None:
    before = _checksums(faces)
    model = _Grey()
    seen: list[tuple[int, int]] = []
    result = _convert(faces, out, model=model, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert result.is_complete
    assert (result.faces_written, result.frames_written) == (5, 0)
    assert model.batches == [2, 2, 1]
    assert seen[-1] == (5, 5)
    assert _checksums(faces) == before
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in faces.iterdir())
    for path in faces.iterdir():
        old, new = read_face_header(path), read_face_header(out / path.name)
        assert (new.png.width, new.png.height) == (96, 96)
        assert old.metadata is not None
        assert new.metadata is not None
        assert render_metadata(new.metadata) == render_metadata(old.metadata)
        found = read_provenance(out / path.name)
        assert found is not None
        assert found.source_type == SourceType.COMPOSITE.value
        assert "a_to_b" in found.description
        assert abs(int(_read(out / path.name)[48, 48].mean()) - 128) <= 1
        assert np.array_equal(_read(out / path.name)[:4], _read(path)[:4])  # far outside the crop


def test_colour_changes_only_where_the_mask_is(faces: Path, out: Path) -> None:
    assert _convert(faces, out, mask="extended").is_complete
    path = faces / "drawn_000000_0.png"
    changed = (_read(out / path.name) != _read(path)).any(axis=-1)
    metadata = read_face_header(path).metadata
    assert metadata is not None
    points = draw_face(A, FaceState.from_seed(1, 0), 96).landmarks
    hull = cv2.convexHull(points.astype(np.float32))
    rows, columns = np.nonzero(changed)
    # The extended mask reaches above the brows, but never far outside of the landmarks' hull.
    assert changed.sum() > 500
    far = [cv2.pointPolygonTest(hull, (float(x), float(y)), True) for x, y in zip(columns, rows, strict=True)]
    assert min(far) > -14


def test_a_model_with_a_mask_of_its_own_uses_it(faces: Path, out: Path) -> None:
    result = _convert(faces, out, model=_Grey(mask=0.0), mask="extended")
    assert result.faces_written == 0
    assert {skipped.reason for skipped in result.skipped} == {"its mask is empty, so nothing of it would be swapped"}
    assert _convert(faces, out, model=_Grey(mask=1.0), mask="extended").faces_written == 5


def test_a_real_inference_model_converts(faces: Path, out: Path) -> None:
    model = build_model(
        "lightweight",
        sides=("a", "b"),
        model=ModelOptions(),
        initialization=InitializationOptions(),
        network=NetworkOptions(),
        learn_mask=True,
        seed=1,
    )
    inference = model.inference_model("b").eval()
    result = convert_faces(inference, faces, out, crop=CropSettings(64), mask=None, direction="a_to_b")
    assert result.is_complete
    assert result.faces_written == 5


def test_frames_are_written_with_their_faces_swapped(faces: Path, tmp_path: Path, out: Path) -> None:
    frames = tmp_path / "frames"
    before = _checksums(faces, frames)
    result = _convert(faces, out, frames=frames)
    assert result.is_complete
    assert (result.faces_written, result.frames_written) == (5, 5)
    assert _checksums(faces, frames) == before
    for index in range(5):
        name = f"drawn_{index:06d}.png"
        old, new = _read(frames / name), _read(out / "frames" / name)
        changed = (old != new).any(axis=-1)
        assert 0.005 < changed.mean() < 0.5
        x, y = FaceState.from_seed(1, index).centre
        assert abs(int(new[round(y) + 20, round(x)].mean()) - 128) <= 1
        found = read_provenance(out / "frames" / name)
        assert found is not None
        assert found.source_type == SourceType.COMPOSITE.value


def test_converting_again_gives_the_same_pictures(faces: Path, tmp_path: Path, out: Path) -> None:
    _convert(faces, out, frames=tmp_path / "frames")
    first = _checksums(out)
    assert _convert(faces, out, frames=tmp_path / "frames", batch_size=1).is_complete
    assert _checksums(out) == first


def test_several_faces_of_a_frame_end_in_one_picture(tmp_path: Path, out: Path) -> None:
    faces, frames = tmp_path / "faces", tmp_path / "frames"
    faces.mkdir()
    frames.mkdir()
    states = [FaceState(centre=(170.0, 240.0), scale=80), FaceState(centre=(450.0, 240.0), scale=80)]
    people = [(A, states[0]), (B, states[1])]
    picture = draw_frame(people)
    # Between the two, by name, lies a face of another frame.
    cv2.imwrite(str(frames / "film_000001.png"), picture[..., ::-1])
    cv2.imwrite(str(frames / "film_000002.png"), picture[..., ::-1])
    for name, source, index in (("1", "film_000001.png", 0), ("2", "film_000002.png", 0), ("3", "film_000001.png", 1)):
        identity, state = people[index]
        drawn = draw_face(identity, state, 96)
        write_face(faces / f"{name}.png", drawn.image, drawn_metadata(drawn, state, source, index))
    result = _convert(faces, out, frames=frames, batch_size=1)
    assert result.is_complete
    assert result.frames_written == 2
    both, one = _read(out / "frames" / "film_000001.png"), _read(out / "frames" / "film_000002.png")
    for image, right in ((both, True), (one, False)):
        assert abs(int(image[260, 170].mean()) - 128) <= 1
        assert (abs(int(image[260, 450].mean()) - 128) <= 1) == right


def test_a_videos_frames_are_found_whatever_their_pictures_are_called(tmp_path: Path, out: Path) -> None:
    faces, frames = tmp_path / "faces", tmp_path / "frames"
    faces.mkdir()
    frames.mkdir()
    state = FaceState()
    drawn = draw_face(A, state, 96)
    write_face(faces / "old.png", drawn.image, drawn_metadata(drawn, state, "film_000001.png", 0))
    write_face(faces / "new.png", drawn.image, drawn_metadata(drawn, state, "film_000001.mp4", 1))
    cv2.imwrite(str(frames / "film_000001.jpg"), draw_frame([(A, state)])[..., ::-1])
    result = _convert(faces, out, frames=frames)
    assert result.is_complete
    assert result.frames_written == 1
    found = read_provenance(out / "frames" / "film_000001.jpg")
    assert found is not None
    assert found.source_type == SourceType.COMPOSITE.value
    cv2.imwrite(str(frames / "film_000001.bmp"), draw_frame([(A, state)]))
    result = _convert(faces, out, frames=frames)
    assert [skipped.reason.split(":")[0] for skipped in result.skipped] == ["several frames could be meant"] * 2


def test_a_frame_that_was_turned_into_png_is_found_though_its_tiff_still_lies_there(tmp_path: Path, out: Path) -> None:
    faces, frames = tmp_path / "faces", tmp_path / "frames"
    faces.mkdir()
    frames.mkdir()
    state = FaceState()
    drawn = draw_face(A, state, 96)
    write_face(faces / "named.png", drawn.image, drawn_metadata(drawn, state, "scan.tif"))
    write_face(faces / "video.png", drawn.image, drawn_metadata(drawn, state, "film_000001.mp4"))
    for name in ("scan", "film_000001"):
        for suffix in (".tif", ".png"):
            cv2.imwrite(str(frames / f"{name}{suffix}"), draw_frame([(A, state)])[..., ::-1])
    result = _convert(faces, out, frames=frames)
    assert result.is_complete
    assert result.frames_written == 2
    assert result.notes == []


def test_odd_frames_are_done_or_named_and_the_others_go_on(tmp_path: Path, out: Path) -> None:
    faces, frames = tmp_path / "faces", tmp_path / "frames"
    faces.mkdir()
    frames.mkdir()
    kinds = ["good", "cut", "grey", "deep", "alpha", "outside", "half", "missing", "larger", "text", "scan"]
    for index, kind in enumerate(kinds):
        centre = {"half": (10.0, 240.0), "outside": (-900.0, 240.0)}.get(kind, (320.0, 240.0))
        state = FaceState(centre=centre)
        drawn = draw_face(A, state, 96)
        name = "scan.tiff" if kind == "scan" else f"{kind}.png"
        write_face(faces / f"{index}_{kind}.png", drawn.image, drawn_metadata(drawn, state, name))
        bgr = draw_frame([(A, state)])[..., ::-1]
        if kind == "grey":
            bgr = cv2.cvtColor(np.ascontiguousarray(bgr), cv2.COLOR_BGR2GRAY)
        elif kind == "deep":
            bgr = bgr.astype(np.uint16) * 257
        elif kind == "alpha":
            bgr = np.dstack([bgr, np.full(bgr.shape[:2], 77, np.uint8)])
        elif kind == "larger":
            bgr = cv2.resize(np.ascontiguousarray(bgr), (800, 600))
        if kind != "missing":
            cv2.imwrite(str(frames / name), bgr)
    (frames / "cut.png").write_bytes((frames / "cut.png").read_bytes()[:-2000])
    (frames / "text.png").write_text("no picture")
    (frames / "nobody.png").write_bytes((frames / "good.png").read_bytes())

    result = _convert(faces, out, frames=frames, batch_size=3)

    assert not result.is_complete
    assert result.faces_written == len(kinds)
    written = sorted(path.stem for path in (out / "frames").iterdir())
    assert written == ["alpha", "deep", "good", "grey", "half"]
    assert result.frames_written == 5
    reasons = {skipped.name: skipped.reason for skipped in result.skipped}
    assert "cut off" in reasons["cut.png"]
    assert "no such frame" in reasons["missing.png"]
    assert "it is no " in reasons["text.png"]
    assert "it is no " in reasons["scan.tiff"]
    assert "lies outside of outside.png" in reasons["5_outside.png"]
    assert "640 x 480" in reasons["8_larger.png"]
    assert len(reasons) == 6
    assert any("1 of the 11 frames" in note for note in result.notes)
    assert any("16 bits" in note for note in result.notes)
    alpha = cv2.imread(str(out / "frames" / "alpha.png"), cv2.IMREAD_UNCHANGED)
    assert (alpha[..., 3] == 77).all()
    for kind in written:
        assert read_provenance(out / "frames" / f"{kind}.png") is not None


def test_odd_faces_are_done_or_named_and_the_others_go_on(faces: Path, tmp_path: Path, out: Path) -> None:
    source = faces / "drawn_000000_0.png"
    metadata = read_face_header(source).metadata
    assert metadata is not None
    (faces / "cut.png").write_bytes(source.read_bytes()[:3000])
    (faces / "wide.png").write_bytes(cv2.imencode(".png", np.zeros((50, 80, 3), np.uint8))[1].tobytes())
    (faces / "Thumbs.db").write_text("x")
    grey = cv2.imencode(".png", np.full((64, 64), 90, np.uint8))[1].tobytes()
    (faces / "grey_plain.png").write_bytes(grey)
    (faces / "photo.jpg").write_bytes(cv2.imencode(".jpg", np.full((64, 64, 3), 90, np.uint8))[1].tobytes())
    (faces / "photo.png").write_bytes(grey)
    result = _convert(faces, out, frames=tmp_path / "frames")
    assert result.faces_written == 5 + 3
    assert result.frames_written == 5
    reasons = {skipped.name: skipped.reason for skipped in result.skipped}
    assert set(reasons) == {"cut.png", "wide.png", "grey_plain.png", "photo.jpg", "photo.png"}
    assert "no metadata" in reasons["photo.jpg"]  # swapped, and not pasted
    assert (out / "photo.png").exists()
    assert (out / "photo.jpg.png").exists()
    assert (_read(out / "grey_plain.png") == 128).all()
    found = read_provenance(out / "grey_plain.png")
    assert found is not None
    assert found.source_type == SourceType.TRAINED.value  # nothing of the original is left


def test_a_face_that_cannot_have_the_mask_is_named(faces: Path, out: Path) -> None:
    result = _convert(faces, out, mask="vgg-clear")
    assert result.faces_written == 0
    assert len(result.skipped) == 5
    assert "no such mask is stored" in result.skipped[0].reason
    assert _convert(faces, out, mask="custom_face").faces_written == 5


def test_a_face_that_vanishes_or_changes_meanwhile_is_named(faces: Path, out: Path) -> None:
    from ostinato.faces.scan import scan_folder

    cv2.imwrite(str(faces / "plain.png"), np.zeros((64, 64, 3), np.uint8))
    scan = scan_folder(faces)
    (faces / "drawn_000001_0.png").unlink()
    (faces / "drawn_000002_0.png").write_text("text")
    cv2.imwrite(str(faces / "plain.png"), np.zeros((50, 80, 3), np.uint8))
    result = convert_faces(_Grey(), scan, out, crop=CROP, mask=None, direction="a_to_b")
    assert result.faces_written == 3
    assert [skipped.name for skipped in result.skipped] == ["drawn_000001_0.png", "drawn_000002_0.png", "plain.png"]


def test_values_that_are_not_finite_are_named_and_not_written(faces: Path, out: Path) -> None:
    result = _convert(faces, out, model=_Grey(float("nan")))
    assert result.faces_written == 0
    assert "not finite" in result.skipped[0].reason


@pytest.mark.parametrize("case", ["faces", "frames", "frames_folder", "link"])
def test_an_output_folder_that_holds_originals_is_refused(faces: Path, tmp_path: Path, case: str) -> None:
    frames = tmp_path / "frames"
    out = {"faces": faces, "frames": frames, "frames_folder": tmp_path, "link": tmp_path / "link"}[case]
    if case == "link":
        out.symlink_to(faces)
    before = _checksums(faces, frames)
    with pytest.raises(BadInputError, match="originals"):
        _convert(faces, out, frames=frames)
    assert _checksums(faces, frames) == before


def test_pictures_that_no_conversion_wrote_are_never_replaced(faces: Path, out: Path, tmp_path: Path) -> None:
    out.mkdir()
    (out / "drawn_000000_0.png").write_bytes((faces / "drawn_000000_0.png").read_bytes())
    (out / "drawn_000001_0.png").symlink_to(faces / "drawn_000001_0.png")
    os.link(faces / "drawn_000002_0.png", out / "drawn_000002_0.png")
    (out / "frames").mkdir()
    (out / "frames" / "drawn_000003.png").write_text("mine")
    before = _checksums(faces, out)
    result = _convert(faces, out, frames=tmp_path / "frames")
    assert [skipped.name for skipped in result.skipped] == [
        "drawn_000000_0.png",
        "drawn_000001_0.png",
        "drawn_000002_0.png",
        "drawn_000003.png",
    ]
    assert "was not written by a conversion" in result.skipped[0].reason
    assert "is a link" in result.skipped[1].reason
    after = _checksums(faces, out)
    assert {path: after[path] for path in before} == before


def test_a_disk_that_refuses_stops_with_one_clear_message(
    faces: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    write = convert_module.write_face

    def fill_up(*args: object, **kwargs: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")
        write(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(convert_module, "write_face", fill_up)
    with pytest.raises(OstinatoError, match="No space left on device"):
        _convert(faces, out)
    assert len(list(out.iterdir())) == 2
    assert all(read_provenance(path) is not None for path in out.iterdir())


def test_empty_and_missing_folders_are_refused_with_their_names(faces: Path, tmp_path: Path, out: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no usable face"):
        _convert(tmp_path / "empty", out)
    with pytest.raises(BadInputError, match="nowhere"):
        _convert(tmp_path / "nowhere", out)
    with pytest.raises(BadInputError, match="no_frames"):
        _convert(faces, out, frames=tmp_path / "no_frames")


def test_names_of_every_script_are_converted(faces: Path, out: Path) -> None:
    names = ["얼굴 1.png", "🙂.png", " blank .png", "line\nbreak.png", os.fsdecode(b"bytes\xff.png")]
    source = (faces / "drawn_000000_0.png").read_bytes()
    for name in names:
        (faces / name).write_bytes(source)
    result = _convert(faces, out)
    assert result.faces_written == 5 + len(names)
    assert all((out / name).exists() for name in names)
