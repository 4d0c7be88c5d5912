"""Backbones as ONNX files that other programs run without PyTorch, compared with PyTorch before they are handed out."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato.errors import ArgumentValueError, MissingPackageError, NonFiniteError, OstinatoError
from ostinato.faces.drawn import DrawnIdentity, FaceState, draw_face
from ostinato.recognition.backbones import Backbone
from ostinato.recognition.backbones.vit import Attention, FeedForward
from ostinato.recognition.verification.pictures import to_input
from ostinato.runs.atomic import Files

INPUT_NAME = "data"
OUTPUT_NAME = "embedding"

LARGEST_DIFFERENCE = 1e-3
"""How far an embedding may be from PyTorch's, as a part of its length. Usual are 1e-6."""

OLDEST_OPSET = 11

ONE_FILE_BYTES = 2**31 - 2**26
"""Weights of more bytes go to a second file beside the first: an ONNX file itself cannot have 2 GiB."""

PREPARATION = {
    "input": INPUT_NAME,
    "output": OUTPUT_NAME,
    "shape": ["batch", 3, 112, 112],
    "order": "RGB",
    "mean": 127.5,
    "std": 127.5,
    "alignment": "similarity transform of eyes, nose and mouth corners to ArcFace's 112 x 112 template",
    "similarity": "cosine",
}
"""What has to happen to a picture before the network sees it, and to an embedding after. Written into the file."""


class ExportDifferenceError(OstinatoError, RuntimeError):
    """The exported network computes something else than the one it was made from. Field: ``difference``."""


@dataclass(frozen=True)
class OnnxReport:
    """What was written, and how near it is.

    :param path: the file.
    :param weights_path: the second file of a network of 2 GiB and more, which has to stay beside the first.
    :param bytes: of both.
    :param opset: version of the operators.
    :param pictures: how many were compared.
    :param largest_difference: the largest distance between the embeddings that onnxruntime and PyTorch compute for the
        same picture, as a part of the embedding's length.
    """

    path: Path
    weights_path: Path | None
    bytes: int
    opset: int
    pictures: int
    largest_difference: float


def export_onnx(
    backbone: Backbone,
    path: str | Path,
    *,
    opset: int | None = None,
    pictures: Tensor | None = None,
    metadata: Mapping[str, str] | None = None,
    one_file_bytes: int = ONE_FILE_BYTES,
) -> OnnxReport:
    """Write a backbone as an ONNX file and compare it with PyTorch by onnxruntime.

    The network takes ``data``, ``[batch, 3, 112, 112]`` float32, RGB, -1 to 1, for any batch, and gives ``embedding``,
    ``[batch, embedding size]``, not normalised. It is exported in evaluation and in float32; the given one is not
    changed. Nothing is left at ``path`` where the comparison fails, and what was there before stays.

    :param path: replaced at the end.
    :param opset: version of the operators, :data:`OLDEST_OPSET` or more; None for the one that PyTorch's exporter
        gives without converting.
    :param pictures: ``[n, 3, 112, 112]``, float32, -1 to 1, to compare with; None for drawn faces.
    :param metadata: further texts for the file. How a picture is prepared is written in any case, as the entry
        ``preparation`` and, for those that read single entries, ``mean``, ``std`` and ``order``.
    :param one_file_bytes: weights of more bytes go to a second file.
    :raises MissingPackageError: onnx, onnxscript or onnxruntime is not installed.
    :raises ExportDifferenceError: the file computes something else than the network.
    :raises ArgumentValueError: the opset is too old, or this exporter cannot give it.
    :raises NonFiniteError: the network's own embeddings are not finite.
    """
    _require_packages()
    if opset is not None and opset < OLDEST_OPSET:
        raise ArgumentValueError(f"opset is {opset}.", advice=f"{OLDEST_OPSET} is the oldest that is written.")
    path = Path(path)
    network = _plain(backbone)
    compared = drawn_pictures() if pictures is None else pictures
    expected = _embeddings(network, compared)
    size = sum(value.nbytes for value in network.state_dict().values())
    Files().make_folder(path.parent)
    # Beside its place, so that the last step is a renaming on the same disk.
    folder = Path(tempfile.mkdtemp(prefix=f".tmp-{path.name}-", dir=path.parent))
    try:
        made = folder / path.name
        _export(network, made, opset, second_file=size > one_file_bytes)
        found_opset = _complete(made, opset, {**_preparation_texts(), **(metadata or {})})
        difference = _largest_difference(made, compared, expected)
        if not difference <= LARGEST_DIFFERENCE:
            raise ExportDifferenceError(
                f"The exported network differs from the one it was made from by {difference:.1e} of an embedding's "
                f"length, and {LARGEST_DIFFERENCE:.0e} is allowed. Nothing was written.",
                advice="Try another opset, or another version of PyTorch or onnxruntime.",
                difference=difference,
            )
        files = sorted(folder.iterdir(), key=lambda file: file == made)  # the one that needs the other comes last
        for file in files:
            Files().rename(file, path.with_name(file.name))
        Files().flush_folder(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    weights = next((path.with_name(file.name) for file in files if file != made), None)
    total = sum(path.with_name(file.name).stat().st_size for file in files)
    return OnnxReport(path, weights, total, found_opset, len(compared), difference)


def drawn_pictures(count: int = 4) -> Tensor:
    """Drawn faces as a backbone takes them: ``[count, 3, 112, 112]``, always the same ones."""
    faces = [draw_face(DrawnIdentity.from_seed(number), FaceState.from_seed(number), 112) for number in range(count)]
    return to_input([face.image for face in faces])


def _require_packages() -> None:
    missing = []
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ModuleNotFoundError:
            missing.append(package)
    if missing:
        raise MissingPackageError(
            f"Writing ONNX files needs {' and '.join(missing)}, not installed here.",
            advice="Install what exporting needs with: pip install 'ostinato[export]'",
            package=missing[0],
            needed_for="writing ONNX files",
        )


def _plain(backbone: Backbone) -> Backbone:
    """A copy in evaluation, float32, on the CPU, without half precision. Memory: the weights once more."""
    network = copy.deepcopy(backbone).to("cpu", torch.float32).eval()
    network.to(memory_format=torch.contiguous_format)  # pyrefly: ignore
    for module in network.modules():
        if isinstance(module, (Backbone, Attention, FeedForward)):
            module.half_precision = None
    return network.requires_grad_(False)


def _embeddings(network: Backbone, pictures: Tensor) -> Tensor:
    with torch.no_grad():
        embeddings = network(pictures)
    if not bool(torch.isfinite(embeddings).all()):
        raise NonFiniteError(
            "The network's embeddings are not finite, so there is nothing to compare with.",
            advice="Export an earlier generation, from before the training failed.",
            kind="param",
            names=(OUTPUT_NAME,),
            iteration=None,
        )
    return embeddings


def _export(network: Backbone, path: Path, opset: int | None, *, second_file: bool) -> None:
    with _quiet():
        program = torch.onnx.export(
            network,
            (torch.zeros(2, 3, network.image_size, network.image_size),),
            dynamo=True,
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=opset,
            verbose=False,
        )
        assert program is not None
        program.save(str(path), external_data=second_file)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keep the exporter's remarks on its own insides from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _complete(path: Path, asked: int | None, texts: Mapping[str, str]) -> int:
    """Check the file, take out what the exporter says of this machine, and put the texts in. Gives the opset."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    found = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if asked is not None and found != asked:
        raise ArgumentValueError(
            f"This PyTorch's exporter cannot write opset {asked} for this network; it gives {found}.",
            advice=f"Ask for {found}, or leave the opset to the exporter.",
        )
    # Source lines with paths of this machine: nobody else's business, and half the size of a small file.
    graphs: list[Any] = [model.graph, *model.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        for part in (*graph.node, *getattr(graph, "value_info", ()), *getattr(graph, "initializer", ())):
            del part.metadata_props[:]
            part.doc_string = ""
    for part in (*model.graph.input, *model.graph.output):
        del part.metadata_props[:]
    onnx.helper.set_model_props(model, dict(texts))
    onnx.save(model, str(path))
    onnx.checker.check_model(str(path))
    return found


def _preparation_texts() -> dict[str, str]:
    single = {name: str(PREPARATION[name]) for name in ("mean", "std", "order")}
    return {"producer": "ostinato", "preparation": json.dumps(PREPARATION), **single}


def _largest_difference(path: Path, pictures: Tensor, expected: Tensor) -> float:
    """Compare in batches of one and of all: the batch axis has to be free."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    largest = 0.0
    for given, wanted in ((pictures, expected), (pictures[:1], expected[:1])):
        (found,) = session.run([OUTPUT_NAME], {INPUT_NAME: given.numpy()})
        distance = torch.linalg.vector_norm(torch.from_numpy(found) - wanted, dim=1)
        length = torch.linalg.vector_norm(wanted, dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        worst = (distance / length).max().item()
        largest = worst if not worst <= largest else largest  # also where it is not a number
    return largest
