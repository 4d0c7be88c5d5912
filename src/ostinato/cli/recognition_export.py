"""``ostinato recognition export``: the trained network as a file that other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ostinato.cli.trained_run_options import AsJson, Generation, RunOrWeights
from ostinato.errors import UsageError


def export(
    run: RunOrWeights,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="The file to write: OUT.onnx for other programs, OUT.pth for InsightFace and PyTorch.",
            show_default=False,
        ),
    ],
    pictures: Annotated[
        Path | None,
        typer.Option(
            "--pictures",
            metavar="PATH",
            help="A picture, or a folder of them, to compare the ONNX file with PyTorch on; by default drawn faces.",
            show_default=False,
        ),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(
            "--opset", help="Version of ONNX's operators, 11 or more; by default the exporter's.", show_default=False
        ),
    ] = None,
    generation: Generation = None,
    as_json: AsJson = False,
) -> None:
    """Write the network of a run, without the class centres, for other programs.

    An .onnx file takes any number of pictures at once, says inside how they are prepared, and is compared with PyTorch
    by onnxruntime before it is handed out. A .pth file is a plain state dictionary, as InsightFace keeps its weights.
    """
    kind = out.suffix.lower()
    if kind not in (".onnx", ".pth", ".pt"):
        raise UsageError(f"{out} should end in .onnx, .pth or .pt.", advice="The ending says what is written.")
    if kind != ".onnx" and (pictures is not None or opset is not None):
        raise UsageError(f"--pictures and --opset are for .onnx files, and {out} is none.", advice="Leave them out.")
    if opset is not None and opset < 11:
        raise UsageError(f"--opset is {opset}.", advice="Allowed is 11 or more.")
    if out.is_dir():
        raise UsageError(f"{out} is a folder.", advice="Name a file in it.")

    from ostinato.data.file_names import shown_name
    from ostinato.recognition.check_pictures import read_check_pictures
    from ostinato.recognition.insightface import write_backbone_weights
    from ostinato.recognition.onnx_export import export_onnx
    from ostinato.recognition.trained_run import read_trained_run
    from ostinato.runs.atomic import Files

    say = _say_nothing if as_json else typer.echo
    compared = None if pictures is None else read_check_pictures(pictures)
    trained = read_trained_run(run, generation=generation)
    for notice in trained.notices:
        say(notice)
    model = trained.options.model
    say(f"{trained.title}, {model.embedding_size} numbers a face")
    content: dict[str, Any] = {
        "run": str(run),
        "iteration": trained.iteration,
        "backbone": model.backbone,
        "embedding_size": model.embedding_size,
        "out": str(out),
    }
    if kind == ".onnx":
        texts = {"backbone": model.backbone, "embedding_size": str(model.embedding_size)}
        if trained.iteration is not None:
            texts["iteration"] = str(trained.iteration)
        report = export_onnx(trained.model, out, opset=opset, pictures=compared, metadata=texts)
        kinds = "drawn" if compared is None else "real"
        say(
            f"compared with PyTorch on {report.pictures} {kinds} pictures: the largest difference is "
            f"{report.largest_difference:.1e} of an embedding's length"
        )
        say(f"opset {report.opset}, {report.bytes / 2**20:.1f} MiB: {shown_name(out)}")
        if report.weights_path is not None:
            say(f"its weights are in {shown_name(report.weights_path)}, which has to stay beside it")
        content |= {
            "opset": report.opset,
            "bytes": report.bytes,
            "weights": None if report.weights_path is None else str(report.weights_path),
            "pictures": report.pictures,
            "largest_difference": report.largest_difference,
        }
    else:
        Files().make_folder(out.parent)
        write_backbone_weights(trained.model, out)
        content["bytes"] = out.stat().st_size
        say(f"{out.stat().st_size / 2**20:.1f} MiB of weights: {shown_name(out)}")
    if as_json:
        typer.echo(json.dumps(content, indent=2))


def _say_nothing(_text: str) -> None:
    """For --json."""
