"""Class centres that other programs kept one file a rank, merged by class number.

Four ways of keeping them are known:

======================================  ==================  ===============================================
file of rank k                          classes of a rank   momentum
======================================  ==================  ===============================================
``checkpoint_gpu_{k}.pt``               exact partition     of the last parameter in the optimizer's state
``softmax_fc_gpu_{k}.pt``               exact partition     not kept
``rank:{k}_softmax_weight.pt``          exact partition     ``rank:{k}_softmax_weight_mom.pt``
``{k}_centers.param`` (MXNet)           ``ceil(C / K)``     ``{k}_centers_mom.param``, with the rate inside
======================================  ==================  ===============================================

The exact partition gives rank k of K the classes from ``C // K * k + min(k, C % K)`` on, so joining the files in order
gives all classes in order. MXNet's last ranks hold rows of no class; they are cut off.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.data.file_names import shown_name
from ostinato.errors import ArgumentValueError, ModelMismatchError
from ostinato.recognition.insightface.refusal import refusal
from ostinato.recognition.insightface.tensor_files import check_unfolding, read_file, tensors_by_name

_log = logging.getLogger(__name__)

_NAMES = (
    re.compile(r"checkpoint_gpu_(?P<rank>[0-9]{1,6})\.pt"),
    re.compile(r"softmax_fc_gpu_(?P<rank>[0-9]{1,6})\.pt"),
    re.compile(r"rank[:_](?P<rank>[0-9]{1,6})_softmax_weight(?P<momentum>_mom)?\.pt"),
    re.compile(r"(?P<rank>[0-9]{1,6})_centers(?P<momentum>_mom)?\.param"),
)


@dataclass(frozen=True)
class _RankFile:
    """One rank's file, and the file of its momentum where that is another one."""

    rank: int
    path: Path
    momentum_path: Path | None


@dataclass(frozen=True)
class _RankRows:
    """What one rank has saved.

    :param weight: ``[rows, embedding size]``; a view into the file where it can be one.
    :param momentum: of the same shape, in the file's own form; None where there is none.
    :param is_mxnet: rows may be padding, and momentum has the rate inside.
    """

    weight: Tensor
    momentum: Tensor | None
    is_mxnet: bool


def read_centres(
    paths: str | Path | Sequence[str | Path],
    *,
    classes: int | None = None,
    first: int = 0,
    last: int | None = None,
    mxnet_learning_rate: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Read the class centres that the ranks of a training have saved, and join them.

    Only the wanted classes and one rank's file are in memory at a time, and twice the wanted classes at the end.

    :param paths: the files of all ranks, in any order, or the folder they lie in. Momentum files that lie beside the
        given files are found. A single file may have any name.
    :param classes: number of classes. The files must hold exactly so many; MXNet's, which are padded, need it.
    :param first: the first class that is wanted.
    :param last: one past the last class that is wanted; None for all that follow.
    :param mxnet_learning_rate: the rate of the last update of an MXNet training. Its momentum contains the rate;
        without knowing it the momentum is left behind, with a warning.
    :returns: the centres of classes ``first`` to ``last``, ``[last - first, embedding size]``, and their momentum in
        PyTorch's form (rate outside), of the same shape, or None where the files have none. Both float32 on the CPU.
    :raises BadInputError: a file cannot be read or is something else; ranks are missing, double or do not belong
        together; some ranks have momentum and others none. Field: ``path``.
    :raises ModelMismatchError: the files hold another number of classes. Fields: ``found``, ``asked``.
    :raises ArgumentValueError: the range or the rate makes no sense.
    """
    if not 0 <= first <= (first if last is None else last):
        raise ArgumentValueError(f"Classes {first} to {last} are no range.", first=first, last=last)
    if mxnet_learning_rate is not None and not 0 < mxnet_learning_rate < math.inf:
        raise ArgumentValueError(
            f"mxnet_learning_rate is {mxnet_learning_rate}.", advice="Give the rate of the last update, above 0."
        )
    files = _in_order(paths)
    end = min(math.inf if last is None else last, math.inf if classes is None else classes)
    sizes: list[int] = []
    weights: list[Tensor] = []
    momenta: list[Tensor | None] = []
    kinds: set[bool] = set()
    for file in files:
        rows = _read_rank(file)
        if weights and rows.weight.shape[1] != weights[0].shape[1]:
            raise refusal(
                file.path,
                f"has rows of {rows.weight.shape[1]} numbers, and those of rank 0 have {weights[0].shape[1]}",
                "Pass the files of one training",
            )
        kinds.add(rows.is_mxnet)
        start = sum(sizes)
        wanted = slice(max(first - start, 0), int(max(min(end - start, len(rows.weight)), 0)))
        sizes.append(len(rows.weight))
        weights.append(_own(rows.weight[wanted], file.path))
        momenta.append(_own_momentum(rows, wanted, file, mxnet_learning_rate))
    total = _check_sizes(files, sizes, classes, is_mxnet=kinds == {True})
    if last is not None and last > total:
        raise ArgumentValueError(f"Class {last - 1} was asked for, and there are {total} classes.", last=last)
    return torch.cat(weights), _joined(momenta, files)


# --- which files -----------------------------------------------------------------------------------------------------


def _in_order(paths: str | Path | Sequence[str | Path]) -> list[_RankFile]:
    """The files of ranks 0, 1, ... with their momentum files."""
    given = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    if not given:
        raise ArgumentValueError("No file of class centres is given.", advice="Pass the files of all ranks.")
    if len(given) == 1 and given[0].is_dir():
        return _ranked(_in_folder(given[0]))
    if len(given) == 1 and not any(name.fullmatch(given[0].name) for name in _NAMES):
        return [_RankFile(0, given[0], None)]
    return _ranked(given)


def _in_folder(folder: Path) -> list[Path]:
    by_name = [sorted(path for path in folder.iterdir() if name.fullmatch(path.name)) for name in _NAMES]
    found = [paths for paths in by_name if paths]
    if not found:
        raise refusal(
            folder,
            "is a folder without class centres",
            "They are called checkpoint_gpu_0.pt, softmax_fc_gpu_0.pt, rank:0_softmax_weight.pt or 0_centers.param",
        )
    if len(found) > 1:
        names = " and ".join(paths[0].name for paths in found)
        raise refusal(folder, f"holds class centres of several programs ({names})", "Pass the files themselves")
    return found[0]


def _ranked(paths: Sequence[Path]) -> list[_RankFile]:
    weights: dict[int, Path] = {}
    momenta: dict[int, Path] = {}
    used: set[re.Pattern[str]] = set()
    for path in paths:
        name, match = next(((name, match) for name in _NAMES if (match := name.fullmatch(path.name))), (None, None))
        if name is None or match is None:
            raise refusal(
                path,
                "has a name that does not tell which rank wrote it",
                "Call the files softmax_fc_gpu_0.pt, softmax_fc_gpu_1.pt and so on, in the order of the ranks",
            )
        used.add(name)
        rank = int(match["rank"])
        kept = momenta if match.groupdict().get("momentum") else weights
        if kept.setdefault(rank, path) != path or len(used) > 1:
            raise refusal(
                path,
                f"and {shown_name(kept[rank])} do not belong to one training"
                if kept[rank] != path
                else "was written by another program than the files before it",
                "Pass one file for every rank",
            )
    missing = [rank for rank in range(max([*weights, *momenta]) + 1) if rank not in weights]
    if missing:
        raise refusal(
            paths[0],
            f"is one of several, and the centres of rank {', '.join(map(str, missing))} are missing",
            "Pass the files of all ranks, from 0 on",
        )
    return [_RankFile(rank, weights[rank], momenta.get(rank) or _beside(weights[rank])) for rank in sorted(weights)]


def _beside(path: Path) -> Path | None:
    """The momentum file that belongs to a file of centres, where it lies in the same folder."""
    momentum = path.with_name(f"{path.stem}_mom{path.suffix}")
    return momentum if momentum.is_file() and any(name.fullmatch(momentum.name) for name in _NAMES) else None


# --- what is in them -------------------------------------------------------------------------------------------------


def _read_rank(file: _RankFile) -> _RankRows:
    kind, content = read_file(file.path)
    weight, momentum = _table(content, file.path), None
    if isinstance(content, dict) and "state_optimizer" in content:
        momentum = _momentum_of_last_parameter(content["state_optimizer"], file.path)
    if file.momentum_path is not None:
        momentum = _table(read_file(file.momentum_path)[1], file.momentum_path)
    if momentum is not None and momentum.shape != weight.shape:
        raise refusal(
            file.momentum_path or file.path,
            f"has momentum of the shape {list(momentum.shape)} for centres of the shape {list(weight.shape)}",
            "Pass the files of one moment of one training",
        )
    return _RankRows(weight, momentum, kind == "mxnet")


def _table(content: Any, path: Path) -> Tensor:
    """The rows in a file of one of the four kinds."""
    found = content
    if isinstance(found, dict) and "state_dict_softmax_fc" in found:
        found = found["state_dict_softmax_fc"]
    if isinstance(found, dict):
        if {"state", "param_groups"} <= found.keys():
            raise refusal(path, "is the state of an optimizer, not class centres", "Pass the centres themselves")
        tensors = tensors_by_name(found)
        if tensors is None or tensors.keys() != {"weight"}:
            first = ", ".join(str(name) for name in list(found)[:3])
            raise refusal(
                path,
                f"holds {len(found)} entries ({first}, ...), not class centres",
                "If they are the weights of a backbone, pass it where those are asked for",
            )
        found = tensors["weight"]
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, Tensor) or found.dim() != 2 or not found.is_floating_point() or not found.numel():
        what = f"a tensor of shape {list(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise refusal(path, f"holds {what}, not a table of class centres", "Check the path")
    check_unfolding([found], path)
    return found


def _momentum_of_last_parameter(state: Any, path: Path) -> Tensor | None:
    """Momentum of the centres, which are the last parameter of the last group of a PyTorch optimizer."""
    try:
        kept = state["state"].get(state["param_groups"][-1]["params"][-1], {})
        momentum, moments = kept.get("momentum_buffer"), "exp_avg" in kept
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise refusal(path, "has an optimizer's state that is none of PyTorch's", "Get the file again") from error
    if moments:
        _log.warning("%s: the moments that AdamW kept for the centres are left behind.", shown_name(path))
    if momentum is None:
        return None
    if not isinstance(momentum, Tensor):
        raise refusal(path, "has momentum that is no tensor", "Get the file again")
    check_unfolding([momentum], path)
    return momentum


def _own_momentum(rows: _RankRows, wanted: slice, file: _RankFile, mxnet_learning_rate: float | None) -> Tensor | None:
    if rows.momentum is None:
        return None
    if not rows.is_mxnet:
        return _own(rows.momentum[wanted], file.momentum_path or file.path)
    if mxnet_learning_rate is None:
        if file.rank == 0:
            _log.warning(
                "%s: MXNet's momentum contains the learning rate, which is not in the files; it is left behind. Give "
                "the rate of the last update to keep it.",
                shown_name(file.momentum_path or file.path),
            )
        return None
    # MXNet: v = mu v - rate g, w = w + v. PyTorch: b = mu b + g, w = w - rate b. So v = -rate b at a constant rate.
    return _own(rows.momentum[wanted], file.momentum_path or file.path).div_(-mxnet_learning_rate)


def _own(rows: Tensor, path: Path) -> Tensor:
    plain = rows.detach().to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
    if not bool(torch.isfinite(plain).all()):
        raise refusal(path, "holds numbers that are not finite", "That training had failed; take earlier files")
    return plain


def _check_sizes(files: Sequence[_RankFile], sizes: Sequence[int], classes: int | None, *, is_mxnet: bool) -> int:
    """Compare the rows of the ranks with how the classes are divided. Gives the number of classes."""
    found, ranks = sum(sizes), len(sizes)
    if is_mxnet:
        if classes is None:
            raise refusal(
                files[0].path,
                f"and the others hold {found:,} rows, some of which may be padding of MXNet's",
                "Say the number of classes",
            )
        total, expected = classes, [-(-classes // ranks)] * ranks
    else:
        total = found if classes is None else classes
        expected = [total // ranks + (rank < total % ranks) for rank in range(ranks)]
    if list(sizes) != expected:
        counts = ", ".join(f"{size:,}" for size in sizes)
        if is_mxnet or classes is not None:
            raise ModelMismatchError(
                f"The {ranks} files of class centres hold {found:,} rows ({counts}), and {total:,} classes on {ranks} "
                f"ranks have {', '.join(f'{size:,}' for size in expected)}.",
                advice="Pass the files of all ranks of one training, and the classes that it was trained on.",
                found=found,
                asked=total,
            )
        raise refusal(
            files[0].path,
            f"and the others hold {counts} rows, which is not how {ranks} ranks divide {found:,} classes",
            "Pass the files of all ranks of one training",
        )
    return total


def _joined(momenta: Sequence[Tensor | None], files: Sequence[_RankFile]) -> Tensor | None:
    there = [momentum for momentum in momenta if momentum is not None]
    if not there:
        return None
    if len(there) < len(momenta):
        file = next(file for file, momentum in zip(files, momenta, strict=True) if momentum is None)
        raise refusal(
            file.path,
            "has no momentum, and other ranks have it",
            "Pass the momentum of every rank, or of none by moving their files away",
        )
    return torch.cat(there)
