from __future__ import annotations

import numpy as np

from ostinato.swap.drawn_task import comparison_sheet, swapped, unseen_faces, write_training_folders


def test_the_true_swap_is_like_itself_and_unlike_the_face_it_replaces():
    unseen = unseen_faces(3, 64)
    perfect, untouched = unseen.similarity(unseen.truths), unseen.similarity(unseen.sources)
    assert perfect.ssim > 0.9999
    assert perfect.psnr >= 100
    assert untouched.ssim < 0.6
    assert untouched.psnr < 15


def test_only_the_face_counts():
    unseen = unseen_faces(2, 64)
    outside = unseen.truths.copy()
    outside[unseen.masks <= 127] = 0
    inside = unseen.truths.copy()
    inside[unseen.masks > 127] = 0
    assert unseen.similarity(outside).psnr >= 100
    assert unseen.similarity(inside).psnr < 15


def test_unseen_faces_are_in_no_training_folder(tmp_path):
    told: list[str] = []
    folders = write_training_folders(tmp_path, 3, 64, told.append)
    assert len(told) == 2
    write_training_folders(tmp_path, 3, 64, told.append)
    assert len(told) == 2  # what is there is kept
    assert {side: len(list(folder.iterdir())) for side, folder in folders.items()} == {"a": 3, "b": 3}
    assert {path.read_bytes() for path in folders["a"].iterdir()}.isdisjoint(
        {path.read_bytes() for path in folders["b"].iterdir()}
    )


def test_the_sheet_shows_picture_swap_and_truth_below_each_other():
    unseen = unseen_faces(3, 64)
    sheet = comparison_sheet(unseen, unseen.truths, 2, zoom=1)
    assert sheet.shape == (3 * 64, 3 * 64, 3)
    np.testing.assert_array_equal(sheet[:64, 64:128], unseen.sources[0])
    np.testing.assert_array_equal(sheet[64:128, 128:], unseen.truths[1])


def test_a_models_pictures_come_back_as_bytes():
    unseen = unseen_faces(2, 64)
    # What a model draws beyond white and black must not wrap around.
    np.testing.assert_array_equal(swapped(lambda faces: [faces + 2], unseen), 255)
    np.testing.assert_array_equal(swapped(lambda faces: [faces * 0, faces], unseen), unseen.sources)
