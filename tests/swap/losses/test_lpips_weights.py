from __future__ import annotations

import hashlib
import logging
import os
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from lpips_formula import formula_weights, write_formula_files

from ostinato.errors import BadInputError
from ostinato.swap.losses import read_lpips_weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of two networks. Not to be changed."""
    folder = tmp_path_factory.mktemp("lpips")
    for name in ("lpips_alex", "lpips_squeeze"):
        write_formula_files(name, folder)
    return folder


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_are_told_apart_by_what_is_in_them(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = sorted(folder.iterdir(), reverse=True)
    with caplog.at_level(logging.INFO):
        read = read_lpips_weights(["ssim", "lpips_squeeze", "lpips_alex"], files)
    assert list(read) == ["lpips_squeeze", "lpips_alex"]
    for name, weights in read.items():
        expected = formula_weights(name)
        assert weights.trunk.keys() == expected.trunk.keys()
        assert all(torch.equal(tensor, expected.trunk[key]) for key, tensor in weights.trunk.items())
        assert all(torch.equal(one, other) for one, other in zip(weights.head, expected.head, strict=True))
    for path in files:
        assert checksum(path) in caplog.text


def test_the_other_published_names_of_a_head_are_known(folder: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.pth"
    torch.save(
        OrderedDict((f"{i}.1.weight", tensor) for i, tensor in enumerate(formula_weights("lpips_alex").head)), head
    )
    read = read_lpips_weights(["lpips_alex"], [head, folder / "lpips_alex_trunk.pth"])
    assert torch.equal(read["lpips_alex"].head[4], formula_weights("lpips_alex").head[4])


def test_without_an_lpips_loss_no_file_is_opened() -> None:
    assert read_lpips_weights(["ssim", "mse"], ["/nowhere"]) == {}


def test_what_is_missing_is_named_with_the_way_to_get_it(folder: Path) -> None:
    trunk = folder / "lpips_alex_trunk.pth"
    with pytest.raises(BadInputError) as caught:
        read_lpips_weights(["lpips_alex"], [trunk])
    message = str(caught.value)
    assert "does not hold the head of lpips_alex" in message
    assert f"{trunk} (SHA-256 {checksum(trunk)}: the trunk of lpips_alex)" in message
    assert "install the Python package lpips, and add the path of the file weights/v0.1/alex.pth" in message
    assert caught.value.exit_code == 3

    with pytest.raises(BadInputError) as caught:
        read_lpips_weights(["lpips_vgg16"], [])
    message = str(caught.value)
    assert "does not hold the trunk and the head of lpips_vgg16. It holds: none" in message
    assert 'torchvision.models.vgg16(weights="IMAGENET1K_V1").state_dict(), "vgg16.pth")' in message


def test_two_different_files_for_the_same_part_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pth"
    torch.save(
        {f"{i}.1.weight": torch.ones_like(tensor) for i, tensor in enumerate(formula_weights("lpips_alex").head)}, other
    )
    files = [folder / "lpips_alex_trunk.pth", folder / "lpips_alex_head.pth", other]
    with pytest.raises(BadInputError, match=r"Two files of loss\.lpips_files are the head of lpips_alex"):
        read_lpips_weights(["lpips_alex"], files)
    # The same file twice is no contradiction.
    assert read_lpips_weights(["lpips_alex"], [*files[:2], files[1]])


class _Dangerous:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_file_that_would_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    file, proof = tmp_path / "bad.pth", tmp_path / "proof"
    torch.save({"0.1.weight": _Dangerous(proof)}, file)
    with pytest.raises(BadInputError, match=r"bad\.pth \(SHA-256 [0-9a-f]{64}\) is not a file of tensors"):
        read_lpips_weights(["lpips_alex"], [file])
    assert not proof.exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a file of tensors"),
        (b"\x80\x02nonsense", "not a file of tensors"),
        (b"PK\x03\x04 and so on", "not a file of tensors"),
        (
            {"features.0.weight": torch.zeros(64, 3, 11, 11)},
            r"neither the trunk nor the head.*features\.0\.weight \(64",
        ),
        ([1, 2, 3], "neither the trunk nor the head.*begins with no tensors"),
        (
            {f"{i}.1.weight": torch.full((1, c, 1, 1), torch.nan) for i, c in enumerate((64, 192, 384, 256, 256))},
            "finite",
        ),
    ],
)
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, content: object, complaint: str) -> None:
    file = tmp_path / "file.pth"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with pytest.raises(BadInputError, match=complaint) as caught:
        read_lpips_weights(["lpips_alex"], [file])
    assert checksum(file) in str(caught.value)


def test_a_file_cut_short_is_refused(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.pth"
    whole = (folder / "lpips_alex_head.pth").read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInputError, match="damaged"):
        read_lpips_weights(["lpips_alex"], [file])


def test_a_checksum_in_the_name_is_held_against_the_content(folder: Path, tmp_path: Path) -> None:
    content = (folder / "lpips_alex_head.pth").read_bytes()
    right = tmp_path / f"alex-{checksum(folder / 'lpips_alex_head.pth')[:8]}.pth"
    right.write_bytes(content)
    assert read_lpips_weights(["lpips_alex"], [right, folder / "lpips_alex_trunk.pth"])
    wrong = tmp_path / "alex-01234567.pth"
    wrong.write_bytes(content)
    with pytest.raises(BadInputError, match="is damaged: its name says that its SHA-256 begins with 01234567"):
        read_lpips_weights(["lpips_alex"], [wrong])


def test_a_path_that_is_no_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.pth"):
        with pytest.raises(BadInputError, match=r"named in loss\.lpips_files, is no file"):
            read_lpips_weights(["lpips_alex"], [path])
