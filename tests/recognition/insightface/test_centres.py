"""Class centres of several ranks, merged by class number."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from formula_backbone import formula_tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError, BadInputError, ModelMismatchError
from ostinato.optim.mxnet_files import write_array_list
from ostinato.recognition.insightface import read_centres

CLASSES, SIZE = 37, 4
WEIGHT = formula_tensor(1, CLASSES, SIZE).float()
MOMENTUM = formula_tensor(2, CLASSES, SIZE).float()


def exact(ranks: int, classes: int = CLASSES) -> list[slice]:
    """The classes of each rank as PyTorch's code divides them."""
    starts = [classes // ranks * rank + min(rank, classes % ranks) for rank in range(ranks + 1)]
    return [slice(start, end) for start, end in pairwise(starts)]


def padded(table: Tensor, ranks: int, rank: int) -> Tensor:
    """The rows of a rank as MXNet's code divides them, with rows of no class at the end."""
    rows = -(-len(table) // ranks)
    whole = torch.cat([table, torch.full((rows * ranks - len(table), table.shape[1]), 77.0)])
    return whole[rank * rows : (rank + 1) * rows]


def optimizer_state(weight: Tensor, momentum: Tensor | None) -> dict[str, Any]:
    """The state that SGD has after a training of a small backbone and these centres, the centres last."""
    backbone, centres = nn.Parameter(torch.zeros(3)), nn.Parameter(weight.clone())
    optimizer = torch.optim.SGD([{"params": [backbone]}, {"params": [centres]}], 0.1, momentum=0.9)
    optimizer.state[backbone]["momentum_buffer"] = torch.full((3,), 5.0)
    if momentum is not None:
        optimizer.state[centres]["momentum_buffer"] = momentum.clone()
    return optimizer.state_dict()


def checkpoints(folder: Path, ranks: int, momentum: bool = True) -> list[Path]:
    paths = []
    for rank, own in enumerate(exact(ranks)):
        paths.append(folder / f"checkpoint_gpu_{rank}.pt")
        content = {
            "epoch": 2,
            "global_step": 100,
            "state_dict_backbone": {"fc.bias": torch.zeros(3)},
            "state_dict_softmax_fc": {"weight": WEIGHT[own].clone()},
            "state_optimizer": optimizer_state(WEIGHT[own], MOMENTUM[own] if momentum else None),
            "state_lr_scheduler": {"last_epoch": 100},
        }
        torch.save(content, paths[-1])
    return paths


def softmax_files(folder: Path, ranks: int) -> list[Path]:
    paths = [folder / f"softmax_fc_gpu_{rank}.pt" for rank in range(ranks)]
    for path, own in zip(paths, exact(ranks), strict=True):
        torch.save({"weight": WEIGHT[own].clone()}, path)
    return paths


def tensor_files(folder: Path, ranks: int, separator: str = ":") -> list[Path]:
    paths = []
    for rank, own in enumerate(exact(ranks)):
        paths.append(folder / f"rank{separator}{rank}_softmax_weight.pt")
        torch.save(WEIGHT[own].clone(), paths[-1])
        torch.save(MOMENTUM[own].clone(), folder / f"rank{separator}{rank}_softmax_weight_mom.pt")
    return paths


def mxnet_files(folder: Path, ranks: int, rate: float = 0.1) -> list[Path]:
    paths = []
    for rank in range(ranks):
        paths.append(folder / f"{rank}_centers.param")
        for path, table in ((paths[-1], WEIGHT), (folder / f"{rank}_centers_mom.param", -rate * MOMENTUM)):
            with path.open("wb") as file:
                write_array_list(file, [padded(table, ranks, rank)])
    return paths


KINDS: dict[str, Callable[[Path, int], list[Path]]] = {
    "checkpoint": checkpoints,
    "softmax": softmax_files,
    "tensor": tensor_files,
    "underscore": lambda folder, ranks: tensor_files(folder, ranks, "_"),
    "mxnet": mxnet_files,
}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_any_number_of_ranks_give_all_classes_in_order(tmp_path: Path, kind: str, ranks: int) -> None:
    paths = KINDS[kind](tmp_path, ranks)
    weight, momentum = read_centres(reversed_list(paths), classes=CLASSES, mxnet_learning_rate=0.1)
    assert torch.equal(weight, WEIGHT)
    assert weight.is_contiguous()
    assert weight.dtype == torch.float32
    if kind == "softmax":
        assert momentum is None
    else:
        assert momentum is not None
        torch.testing.assert_close(momentum, MOMENTUM, rtol=1e-6 if kind == "mxnet" else 0, atol=0)


def reversed_list(paths: list[Path]) -> list[Path]:
    return list(reversed(paths))


@pytest.mark.parametrize("kind", ["checkpoint", "softmax", "tensor", "mxnet"])
def test_the_folder_is_enough(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path, 3)
    (tmp_path / "model.pt").write_bytes(b"something else")
    assert torch.equal(read_centres(tmp_path, classes=CLASSES)[0], WEIGHT)
    assert torch.equal(read_centres(str(tmp_path), classes=CLASSES)[0], WEIGHT)


def test_momentum_files_may_be_given_or_found(tmp_path: Path) -> None:
    weights = tensor_files(tmp_path, 2)
    everything = sorted(tmp_path.iterdir())
    assert len(everything) == 4
    for paths in (weights, everything):
        _, momentum = read_centres(paths)
        assert momentum is not None
        assert torch.equal(momentum, MOMENTUM)


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "my head.pt"
    torch.save({"weight": WEIGHT}, path)
    assert torch.equal(read_centres(path)[0], WEIGHT)
    torch.save(WEIGHT.half(), path)
    assert torch.equal(read_centres([path])[0], WEIGHT.half().float())


@given(ranks=st.integers(1, 5), first=st.integers(0, CLASSES), more=st.integers(0, CLASSES))
def test_a_range_of_classes_is_that_part_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, first: int, more: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"ranges_{ranks}"
    if not folder.is_dir():
        folder.mkdir()
        checkpoints(folder, ranks)
        mxnet_files(folder, ranks)
    last = min(first + more, CLASSES)
    for name in ("checkpoint_gpu_*", "*_centers.param"):
        weight, momentum = read_centres(
            sorted(folder.glob(name)), classes=CLASSES, first=first, last=last, mxnet_learning_rate=0.1
        )
        assert torch.equal(weight, WEIGHT[first:last])
        assert momentum is not None
        torch.testing.assert_close(momentum, MOMENTUM[first:last], rtol=1e-6, atol=0)


def test_momentum_before_the_first_update_is_none(tmp_path: Path) -> None:
    assert read_centres(checkpoints(tmp_path, 2, momentum=False))[1] is None


def test_moments_of_adamw_are_left_behind_and_this_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path,) = checkpoints(tmp_path, 1)
    content = torch.load(path, weights_only=True)
    last = content["state_optimizer"]["param_groups"][-1]["params"][-1]
    content["state_optimizer"]["state"][last] = {"step": torch.tensor(3.0), "exp_avg": WEIGHT, "exp_avg_sq": WEIGHT}
    torch.save(content, path)
    with caplog.at_level(logging.WARNING):
        weight, momentum = read_centres(path)
    assert torch.equal(weight, WEIGHT)
    assert momentum is None
    assert "the moments that AdamW kept for the centres are left behind" in caplog.text


def test_mxnets_momentum_needs_the_rate_and_this_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = mxnet_files(tmp_path, 4)
    with caplog.at_level(logging.WARNING):
        weight, momentum = read_centres(paths, classes=CLASSES)
    assert torch.equal(weight, WEIGHT)
    assert momentum is None
    assert caplog.text.count("contains the learning rate") == 1


# --- what is refused -------------------------------------------------------------------------------------------------


def test_mxnets_files_need_the_number_of_classes(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"hold 40 rows, some of which may be padding.*Say the number of classes"):
        read_centres(mxnet_files(tmp_path, 4))


def test_another_number_of_classes_is_refused_with_both(tmp_path: Path) -> None:
    for paths in (checkpoints(tmp_path, 4), mxnet_files(tmp_path, 4)):
        with pytest.raises(ModelMismatchError, match=r"and 50 classes on 4 ranks have 13, 1") as caught:
            read_centres(paths, classes=50)
        assert caught.value.fields["asked"] == 50
    # 33 classes on 4 ranks are 9 rows each, not 10; and 36 would be 9 each without padding.
    with pytest.raises(ModelMismatchError):
        read_centres(mxnet_files(tmp_path, 4), classes=36)


def test_missing_double_and_mixed_ranks_are_refused(tmp_path: Path) -> None:
    paths = softmax_files(tmp_path, 4)
    with pytest.raises(BadInputError, match="the centres of rank 1, 2 are missing"):
        read_centres([paths[0], paths[3]])
    with pytest.raises(BadInputError, match="rank 0 are missing"):
        read_centres(paths[1:])
    with pytest.raises(ModelMismatchError):  # the last ranks are missing, which the names cannot tell
        read_centres(paths[:3], classes=CLASSES)
    (tmp_path / "other").mkdir()
    double = softmax_files(tmp_path / "other", 4)
    with pytest.raises(BadInputError, match=r"softmax_fc_gpu_2\.pt and .*do not belong to one training"):
        read_centres([*paths, double[2]])
    tensors = tensor_files(tmp_path, 4)
    with pytest.raises(BadInputError, match="written by another program"):
        read_centres([paths[0], tensors[1], paths[2], paths[3]])
    with pytest.raises(BadInputError, match="holds class centres of several programs"):
        read_centres(tmp_path)


def test_files_whose_sizes_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    paths = softmax_files(tmp_path, 3)
    torch.save({"weight": WEIGHT[:2]}, paths[1])
    with pytest.raises(BadInputError, match=r"hold 13, 2, 12 rows, which is not how 3 ranks divide 27 classes"):
        read_centres(paths)
    torch.save({"weight": torch.zeros(12, 5)}, paths[1])
    with pytest.raises(BadInputError, match="has rows of 5 numbers, and those of rank 0 have 4"):
        read_centres(paths)


def test_momentum_of_some_ranks_only_is_refused(tmp_path: Path) -> None:
    paths = tensor_files(tmp_path, 3)
    (tmp_path / "rank:1_softmax_weight_mom.pt").unlink()
    with pytest.raises(BadInputError, match=r"rank:1_softmax_weight\.pt has no momentum, and other ranks have it"):
        read_centres(paths)
    torch.save(MOMENTUM, tmp_path / "rank:1_softmax_weight_mom.pt")
    with pytest.raises(BadInputError, match=r"has momentum of the shape \[37, 4\] for centres of the shape \[12, 4\]"):
        read_centres(paths)


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "softmax_fc_gpu_0.pt"
    for content, said in (
        ({"conv1.weight": WEIGHT, "bn1.weight": WEIGHT}, "If they are the weights of a backbone"),
        (torch.optim.SGD([nn.Parameter(WEIGHT)], 0.1).state_dict(), "is the state of an optimizer"),
        (torch.zeros(3), r"holds a tensor of shape \[3\], not a table"),
        (torch.zeros(0, 4), r"holds a tensor of shape \[0, 4\]"),
        (torch.zeros(3, 4, dtype=torch.int64), "not a table of class centres"),
        ([WEIGHT, WEIGHT], "holds a list, not a table"),
        (torch.full((3, 4), torch.inf), "numbers that are not finite"),
        (torch.zeros(1).expand(2**20, 2**10), "claims to hold"),
        ({"state_dict_softmax_fc": {"weight": WEIGHT}, "state_optimizer": 3}, "an optimizer's state that is none"),
    ):
        torch.save(content, path)
        with pytest.raises(BadInputError, match=said):
            read_centres(path)


def test_unknown_names_of_several_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="a name that does not tell which rank wrote it"):
        read_centres([tmp_path / "a.pt", tmp_path / "b.pt"])
    with pytest.raises(BadInputError, match="is a folder without class centres"):
        read_centres(tmp_path)
    with pytest.raises(ArgumentValueError, match="No file"):
        read_centres([])


def test_ranges_and_rates_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    paths = softmax_files(tmp_path, 2)
    for first, last in ((-1, 3), (5, 4)):
        with pytest.raises(ArgumentValueError, match="are no range"):
            read_centres(paths, first=first, last=last)
    with pytest.raises(ArgumentValueError, match="Class 49 was asked for, and there are 37"):
        read_centres(paths, last=50)
    with pytest.raises(ArgumentValueError, match="mxnet_learning_rate"):
        read_centres(paths, mxnet_learning_rate=0.0)
