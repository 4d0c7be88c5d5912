from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.errors import FaceFolderError
from ostinato.faces.folder_checks import (
    MIN_FACES,
    RECOMMENDED_FACES,
    check_count,
    check_landmarks,
    check_masks,
    check_readable,
    count_enlarged,
    training_centering,
)
from ostinato.faces.scan import BadFile, FaceFile, FaceKind, FolderScan

HEAD = FaceKind("head", 68, ("vgg-clear",))
HEAD_98 = FaceKind("head", 98, ())
LEGACY = FaceKind("legacy", 68, ())
FOUR = FaceKind("head", 4, ())
PLAIN = FaceKind(None, 0, ())


def _scan(*kinds: FaceKind, folder: str = "a", side: int = 256, bad: int = 0) -> FolderScan:
    files = tuple(FaceFile(Path(folder), f"f{i:04}.png", side, 1, 1, kind) for i, kind in enumerate(kinds))
    return FolderScan(Path(folder), files, tuple(BadFile(f"bad{i}.png", "it is empty") for i in range(bad)))


def test_too_few_faces_are_refused() -> None:
    with pytest.raises(FaceFolderError, match=f"a has 24 usable faces.*at least {MIN_FACES}") as caught:
        check_count(_scan(*[HEAD] * (MIN_FACES - 1)))
    assert caught.value.exit_code == 3
    with pytest.raises(FaceFolderError, match=r"0 usable faces, and 2 files that cannot be used"):
        check_count(_scan(bad=2))


def test_a_folder_of_folders_is_told_from_one_with_too_few_faces() -> None:
    with pytest.raises(FaceFolderError, match=r"a holds no pictures of faces, only 3 files or folders of other kinds"):
        check_count(FolderScan(Path("a"), (), (), others=3))
    with pytest.raises(FaceFolderError, match="a has 1 usable face;"):
        check_count(FolderScan(Path("a"), _scan(HEAD).files, (), others=3))


def test_few_faces_are_a_warning_and_enough_are_none() -> None:
    assert "only 25 faces" in str(check_count(_scan(*[HEAD] * MIN_FACES)))
    assert check_count(_scan(*[HEAD] * (RECOMMENDED_FACES - 1))) is not None
    assert check_count(_scan(*[HEAD] * RECOMMENDED_FACES)) is None


def test_bad_files_are_listed_and_not_without_end() -> None:
    check_readable(_scan(HEAD))
    with pytest.raises(FaceFolderError) as caught:
        check_readable(_scan(HEAD, bad=13))
    message = str(caught.value)
    assert "13 files in a cannot be used" in message
    assert "bad0.png: it is empty" in message
    assert "and 3 more" in message
    assert "bad10.png" not in message
    assert len(caught.value.fields["files"]) == 13


@pytest.mark.parametrize("masks", [(), ("extended", "eye", "mouth"), ("components",), ("vgg-clear", "eye")])
def test_faces_that_have_the_masks_pass(masks: tuple[str, ...]) -> None:
    check_masks(_scan(HEAD, HEAD), masks)


def test_98_points_are_enough_for_every_drawn_mask() -> None:
    check_masks(_scan(HEAD_98), ("components", "extended", "eye", "mouth"))


@pytest.mark.parametrize(
    ("kind", "mask", "reason"),
    [
        (HEAD, "unet-dfl", "no such mask is stored; the face has vgg-clear"),
        (LEGACY, "unet-dfl", "no such mask is stored; the face has none"),
        (FOUR, "extended", "drawn from 68 or 98 landmarks, and the face has 4"),
        (PLAIN, "extended", "plain picture has neither landmarks"),
        (PLAIN, "vgg-clear", "plain picture has neither landmarks"),
    ],
)
def test_faces_that_cannot_have_a_mask_are_named(kind: FaceKind, mask: str, reason: str) -> None:
    with pytest.raises(FaceFolderError, match=reason) as caught:
        check_masks(_scan(kind, kind), (mask,))
    assert "f0001.png" in str(caught.value)
    assert "mask.mask_type" in str(caught.value)
    assert caught.value.fields["files"] == ["f0000.png", "f0001.png"]


def test_missing_landmarks_name_the_option() -> None:
    check_landmarks(_scan(HEAD, HEAD_98), "--warp-to-landmarks")
    with pytest.raises(FaceFolderError, match=r"2 files of 3 in a have no 68 landmarks .*--warp-to-landmarks"):
        check_landmarks(_scan(HEAD, FOUR, PLAIN), "--warp-to-landmarks")


def test_legacy_faces_decide_the_centering() -> None:
    newer, old = _scan(HEAD, PLAIN), _scan(LEGACY, PLAIN, folder="b")
    assert training_centering([newer, newer], "face", is_fixed=False) == "face"
    assert training_centering([newer, newer], "head", is_fixed=True) == "head"
    assert training_centering([newer, old], "face", is_fixed=False) == "legacy"
    assert training_centering([old, old], "legacy", is_fixed=True) == "legacy"


def test_legacy_faces_are_refused_by_a_model_of_another_centering() -> None:
    with pytest.raises(FaceFolderError, match=r"faces in b are cut .* learned 'face' centering"):
        training_centering([_scan(HEAD), _scan(LEGACY, folder="b")], "face", is_fixed=True)


def test_a_folder_that_mixes_both_is_refused() -> None:
    with pytest.raises(
        FaceFolderError, match=r"a mixes 1 faces .*\(f0001.png\) with 2 newer ones \(f0000.png, f0002.png\)"
    ):
        training_centering([_scan(HEAD, LEGACY, HEAD_98)], "legacy", is_fixed=False)


def test_enlarged_faces_are_counted() -> None:
    # A face crop takes 3/4 of a head image's side, and a plain picture is taken whole.
    assert count_enlarged(_scan(HEAD, PLAIN, side=128), 96, "face", 1.0) == 0
    assert count_enlarged(_scan(HEAD, PLAIN, side=128), 97, "face", 1.0) == 1
    assert count_enlarged(_scan(HEAD, PLAIN, side=128), 97, "head", 1.0) == 0
    assert count_enlarged(_scan(HEAD, PLAIN, side=128), 65, "head", 0.5) == 1
