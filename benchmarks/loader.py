"""How fast faces are loaded and augmented: images per second of one core, at 64, 128 and 256 pixels.

Beside the loader, without a cache yet (cold: the first pass, in which every face is prepared and kept) and with one
(warm), stands a plain way to do the same, in the same run: decode the picture, parse its text, solve the pose, cut,
draw the masks and augment image by image in 8 bit, for every use of every face. That is what each use costs where
nothing is kept. It takes OpenCV for everything OpenCV has.

Sources are drawn faces of 512 pixels and about half a megabyte, with two stored masks; three masks are made (face,
eyes, mouth), and all augmentation is on. Every way is measured several times in turn, and its best time counts, because
other programs on the machine only ever slow one down.

    python benchmarks/loader.py [--faces 96] [--rounds 5] [--batch-size 16]
"""

from __future__ import annotations

import argparse
import ast
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ostinato.config.swap import AugmentationOptions, LoaderOptions
from ostinato.faces.drawn import DrawnIdentity, FaceState, draw_face, drawn_metadata
from ostinato.faces.face_files import write_face
from ostinato.faces.loader import SwapLoader
from ostinato.faces.mean_face import HEAD_MODEL, HEAD_MODEL_POINTS, MEAN_FACE
from ostinato.faces.metadata import StoredMask
from ostinato.faces.sample import CropSettings
from ostinato.faces.scan import scan_folder

SIZES = (64, 128, 256)
PUBLISHED = {64: 164, 128: 140, 256: 97}
"""Images per second and core of the program that these files come from, measured on one core of an AMD EPYC (Zen 5)."""
WANTED = {64: 20.0, 128: 6.0, 256: 2.5}
"""How many times that many a warm loader is to reach."""

Images = Any


# --- sources


def write_sources(folder: Path, count: int, seed: int) -> None:
    """Drawn faces with the grain of a camera, which is what makes a PNG of 512 pixels half a megabyte."""
    folder.mkdir()
    random = np.random.default_rng(seed)
    identity = DrawnIdentity.from_seed(seed)
    for index in range(count):
        state = FaceState.from_seed(seed, index)
        face = draw_face(identity, state, 512)
        grain = cv2.GaussianBlur(random.normal(0, 6, face.image.shape).astype(np.float32), (0, 0), 0.6)
        image = np.clip(face.image + grain, 0, 255).astype(np.uint8)
        metadata = drawn_metadata(face, state, f"frame_{index:04d}.png")
        second = StoredMask.pack(np.ascontiguousarray(cv2.resize(face.mask, (128, 128))), face.matrix / 4, "head")
        vector = random.normal(0, 0.05, 512).astype(np.float32)
        metadata = replace(metadata, masks={**metadata.masks, "custom_head": second}, identity={"t-face": vector})
        write_face(folder / f"frame_{index:04d}_0.png", image, metadata)


# --- the plain way

PADDING = {"head": 0.625, "face": 0.5}
CAMERA = np.array([[4, 0, 0.5], [0, 4, 0.5], [0, 0, 1.0]])
FACE_GROUPS = (
    (*range(9), 17),
    (*range(8, 17), 26),
    (17, 18, 19, 8),
    (24, 25, 26, 8),
    (*range(19, 25), 8),
    (*range(17, 22), 27, *range(31, 36), 8),
    (*range(22, 27), 27, *range(31, 36), 8),
    tuple(range(27, 36)),
)


def plain_sample(path: Path, size: int) -> Images:
    """(size, size, 6): B, G, R, face, eyes, mouth."""
    data = path.read_bytes()
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    face = ast.literal_eval(face_text(data))["alignments"]
    points = np.array(face["landmarks_xy"], np.float32)
    legacy = similarity(points[17:], MEAN_FACE)
    normal = points @ legacy[:, :2].T + legacy[:, 2]
    _, rotation, translation = cv2.solvePnP(
        HEAD_MODEL, normal[HEAD_MODEL_POINTS].astype(np.float64), CAMERA, np.zeros(4), flags=cv2.SOLVEPNP_ITERATIVE
    )
    centres = np.array([[0, 0, -2.3], [0, -1.5, 4.2]])
    head, middle = cv2.projectPoints(centres, rotation, translation, CAMERA, np.zeros(4))[0].reshape(2, 2) - 0.5

    side = image.shape[0]
    width = 2 * round(side * (1 - PADDING["head"]) / (1 - PADDING["face"]) / 2)
    unit = 2 * round(side * (1 - PADDING["head"]) / 2)
    left, top = np.rint((middle - head) * unit + (side - width) / 2).astype(int)
    cut = np.zeros((width, width, 3), np.uint8)
    y0, x0 = max(top, 0), max(left, 0)
    inside = image[y0 : top + width, x0 : left + width]
    cut[y0 - top : y0 - top + inside.shape[0], x0 - left : x0 - left + inside.shape[1]] = inside
    crop = cv2.resize(cut, (size, size), interpolation=cv2.INTER_CUBIC if width < size else cv2.INTER_AREA)

    margin = round(size * PADDING["face"] / 2)
    placed = (normal - middle) * (size - 2 * margin) + margin
    feature = {"dilation": round(size * 0.025), "blur": size // 16 | 1}
    return np.dstack(
        [
            crop,
            polygons(lifted(placed), FACE_GROUPS, size),
            polygons(placed, (range(36, 42), range(42, 48)), size, **feature),
            polygons(placed, (range(48, 60),), size, **feature),
        ]
    )


def face_text(data: bytes) -> str:
    place = 8
    while True:
        (length,) = struct.unpack_from(">I", data, place)
        if data[place + 4 : place + 16] == b"iTXtfaceswap":
            return data[place + 8 : place + 8 + length].split(b"\0", 1)[1][4:].decode()
        place += length + 12


def similarity(points: Images, target: Images) -> Images:
    """Umeyama's least-squares rotation, scale and translation."""
    p, q = points.mean(axis=0, dtype=float), target.mean(axis=0)
    u, s, vt = np.linalg.svd((target - q).T @ (points - p) / len(points))
    d = np.array([1, np.sign(np.linalg.det(u) * np.linalg.det(vt))])
    rotation = (u * d) @ vt * ((s * d).sum() / (points - p).var(axis=0).sum())
    return np.column_stack([rotation, q - rotation @ p])


def lifted(points: Images) -> Images:
    p = points.copy()
    left = (p[36] + (p[36] + p[0]) // 2) // 2
    right = (p[45] + (p[16] + p[45]) // 2) // 2
    p[17:22] += (points[17:22] - np.vstack([left, points[36:40]])) // 2
    p[22:27] += (points[22:27] - np.vstack([points[42:46], right])) // 2
    return p


def polygons(points: Images, groups: Any, size: int, dilation: int = 0, blur: int = 0) -> Images:
    mask = np.zeros((size, size), np.uint8)
    whole = np.rint(points).astype(np.int32)
    for group in groups:
        cv2.fillConvexPoly(mask, cv2.convexHull(whole[list(group)]), 255, lineType=cv2.LINE_AA)
    if dilation > 1:
        mask = cv2.dilate(mask, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (dilation, dilation)))
    return cv2.GaussianBlur(mask, (blur, blur), 0) if blur else mask


def plain_augment(samples: Images, random: np.random.Generator) -> tuple[Images, Images, Images]:
    """Inputs, targets and masks of a batch, image by image."""
    count, size = len(samples), samples.shape[1]
    jitter = random.uniform(-1, 1, (count, 1, 1, 3)).astype(np.float32) * np.float32([0.3, 0.08, 0.08])
    for index in range(count):
        lab = cv2.cvtColor(samples[index, ..., :3], cv2.COLOR_BGR2Lab)
        amount = jitter[index]
        levels = np.arange(256, dtype=np.float32)[:, None]
        table = np.where(amount >= 0, (255 - levels) * amount + levels, levels * (1 + amount)).astype(np.uint8)
        lab = cv2.LUT(lab, table.reshape(1, 256, 3))
        if random.random() < 0.5:
            tiles = int(random.integers(0, 5)) * (max(2, size // 128) // 2) + max(2, size // 128)
            lab[..., 0] = cv2.createCLAHE(2.0, (tiles, tiles)).apply(lab[..., 0])
        samples[index, ..., :3] = cv2.cvtColor(lab, cv2.COLOR_Lab2BGR)
    for index in range(count):
        matrix = cv2.getRotationMatrix2D(((size - 1) / 2,) * 2, random.uniform(-10, 10), random.uniform(0.95, 1.05))
        matrix[:, 2] += random.uniform(-0.05, 0.05, 2) * size
        samples[index] = cv2.warpAffine(samples[index], matrix, (size, size), borderMode=cv2.BORDER_REPLICATE)
    flip = random.random(count) < 0.5
    samples[flip] = samples[flip, :, ::-1]
    targets = np.ascontiguousarray(samples[..., 2::-1])
    masks = np.ascontiguousarray(samples[..., 3:])
    inputs = np.empty_like(targets)
    line = np.arange(5) * size / 4 - 0.5
    grid = np.stack(np.meshgrid(line, line))
    big, margin = size * 5 // 4, size // 8
    for index in range(count):
        maps = (grid + random.normal(0, 5 * size / 256, (2, 5, 5))).astype(np.float32)
        x, y = (cv2.resize(part, (big, big))[margin : margin + size, margin : margin + size] for part in maps)
        inputs[index] = cv2.remap(targets[index], x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return inputs, targets, masks


def plain_batches(sides: list[list[Path]], size: int, batch_size: int) -> Iterator[Any]:
    random = np.random.default_rng(0)
    while True:
        chosen = [path for side in sides for path in random.choice(side, batch_size)]
        yield plain_augment(np.stack([plain_sample(path, size) for path in chosen]), random)


# --- measuring


def seconds(work: Callable[[], object], times: int) -> float:
    """Processor seconds of the whole process."""
    start = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - start


def measure(folder: Path, size: int, *, faces: int, rounds: int, batch_size: int) -> dict[str, float]:
    """Images per second of one core: ``plain``, ``cold``, ``warm``."""
    scans = {side: scan_folder(folder / side) for side in ("a", "b")}
    images = 2 * batch_size
    batches = faces // batch_size  # one pass
    plain = plain_batches([scan.paths for scan in scans.values()], size, batch_size)
    best = dict.fromkeys(("plain", "cold", "warm"), float("inf"))
    for _ in range(rounds):
        cache = Path(tempfile.mkdtemp(dir=folder))
        loader = SwapLoader(
            scans,
            crop=CropSettings(size, masks=("extended", "eye", "mouth")),
            input_size=size,
            output_sizes=[size],
            batch_size=batch_size,
            seed=0,
            augmentation=AugmentationOptions(),
            loader=LoaderOptions(num_processes=0),
            cache_dir=cache,
        )
        next(plain)
        with loader:
            best["plain"] = min(best["plain"], seconds(lambda: next(plain), batches) / batches)
            best["cold"] = min(best["cold"], seconds(loader.next_batch, batches) / batches)
            seconds(loader.next_batch, batches)  # the first pass over a cache also checks it
            best["warm"] = min(best["warm"], seconds(loader.next_batch, batches) / batches)
        shutil.rmtree(cache)
    return {name: images / value for name, value in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=96, help="faces per side; a multiple of the batch size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="faces per side and batch")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        for seed, side in enumerate(("a", "b")):
            write_sources(folder / side, arguments.faces, seed + 1)
        weight = sum(path.stat().st_size for path in folder.rglob("*.png")) / (2 * arguments.faces)
        print(f"{arguments.faces} faces a side, {weight / 1024:.0f} KiB each; images per second of one core\n")
        print(f"{'size':>4}  {'plain':>6}  {'cold':>6}  {'warm':>6}  {'cold/plain':>10}  {'warm/plain':>10}", end="")
        print(f"  {'published':>9}  {'warm/published':>14}  {'wanted':>6}")
        for size in SIZES:
            found = measure(
                folder, size, faces=arguments.faces, rounds=arguments.rounds, batch_size=arguments.batch_size
            )
            plain, cold, warm = (found[name] for name in ("plain", "cold", "warm"))
            print(f"{size:>4}  {plain:>6.0f}  {cold:>6.0f}  {warm:>6.0f}  {cold / plain:>10.2f}", end="")
            print(f"  {warm / plain:>10.1f}  {PUBLISHED[size]:>9}  {warm / PUBLISHED[size]:>14.1f}  {WANTED[size]:>6}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
