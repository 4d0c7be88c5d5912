"""How fast pictures for face recognition are loaded: images per processor second, and of two workers per second.

Sources are drawn faces of 112 x 112 pixels as JPEG of quality 95, once as files in folders and once in a record file.
Ostinato's loader reads the record file (and, in another row, the files), decodes, mirrors and collects batches. Beside
it, on the same files and in the same run, stands what one writes in twenty lines with torch's Dataset and DataLoader:
read the file, decode with OpenCV, turn BGR into RGB, mirror, collate. With worker processes its batches also have to
come back to the process that trains; with 0 workers they have not, and everything is done by the calling thread.

A processor second is one that some thread or process of the way was really running, so other programs on the machine
disturb little. Every way is measured several times in turn, and its best time counts. Nothing is read from a disk: the
files are in the memory of the operating system.

    python benchmarks/recognition_loader.py [--images 2048] [--rounds 5] [--batch-size 128]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ostinato.data.jpeg import encode_jpeg
from ostinato.faces.drawn import DrawnIdentity, FaceState, draw_face
from ostinato.recognition.data import RecognitionLoader, Source, open_source
from ostinato.recognition.data.image_folder import scan_identities
from ostinato.recognition.data.packing import pack_folder

_DRAWN = 64  # faces that are drawn; grain makes as many different pictures of them as are asked for


def write_people(folder: Path, images: int, per_identity: int = 16) -> None:
    """Folders of JPEG files with the size and the grain of cut photographs."""
    random = np.random.default_rng(0)
    faces = [
        draw_face(DrawnIdentity.from_seed(seed), FaceState.from_seed(0, seed), 112).image for seed in range(_DRAWN)
    ]
    for number in range(images):
        place = folder / f"{number // per_identity:06d}"
        place.mkdir(exist_ok=True)
        grain = cv2.GaussianBlur(random.normal(0, 6, (112, 112, 3)).astype(np.float32), (0, 0), 0.6)
        image = np.clip(faces[number % _DRAWN] + grain, 0, 255).astype(np.uint8)
        (place / f"{number:06d}.jpg").write_bytes(encode_jpeg(image, 95))


class PlainDataset(Dataset):
    """The usual way: a list of files, OpenCV, a coin for each picture."""

    def __init__(self, root: Path) -> None:
        folders = sorted(folder for folder in root.iterdir())
        self._files = [(str(file), label) for label, folder in enumerate(folders) for file in sorted(folder.iterdir())]

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._files[index]
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        if torch.rand(()) < 0.5:
            image = image[:, ::-1]
        return torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1), label


def plain(root: Path, batch_size: int, workers: int) -> Callable[[], int]:
    """One pass with a DataLoader; returns the number of pictures."""
    loader = DataLoader(PlainDataset(root), batch_size, shuffle=True, num_workers=workers)
    return lambda: sum(len(labels) for _, labels in loader)


def ours(source: Source, batch_size: int, workers: int) -> Callable[[], int]:
    """As many pictures as a pass has, with Ostinato's loader."""

    def run() -> int:
        with RecognitionLoader(source, batch_size, seed=1, workers=workers) as loader:
            return sum(len(loader.next_batch().labels) for _ in range(-(-len(source) // batch_size)))

    return run


def processor_seconds() -> float:
    """What this process and its children that have ended have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        people = Path(folder) / "people"
        people.mkdir()
        write_people(people, arguments.images)
        packed = pack_folder(scan_identities(people), Path(folder) / "train.rec")
        records, files = open_source(Path(folder) / "train.rec"), open_source(people)
        ways = {
            f"{name}, {workers} worker{'s' * (workers != 1)}": make(workers)
            for workers in (0, 1, 2)
            for name, make in (
                ("torch DataLoader, files, OpenCV", lambda workers: plain(people, arguments.batch_size, workers)),
                ("Ostinato, record file", lambda workers: ours(records, arguments.batch_size, workers)),
                ("Ostinato, files", lambda workers: ours(files, arguments.batch_size, workers)),
            )
        }
        best = dict.fromkeys(ways, (0.0, 0.0))
        for _ in range(arguments.rounds):
            for name, run in ways.items():
                wall, used = time.perf_counter(), processor_seconds()
                images = run()
                wall, used = time.perf_counter() - wall, processor_seconds() - used
                best[name] = (max(best[name][0], images / used), max(best[name][1], images / wall))
        records.close()
    print(f"{packed.images:,} pictures of 112 x 112 pixels, {packed.bytes / packed.images / 1024:.1f} KiB each")
    print(f"{'':44}  {'images/processor s':>18}  {'ratio':>6}  {'images/s':>9}")
    for name, (per_processor, per_second) in best.items():
        base = best[f"torch DataLoader, files, OpenCV, {name.split(', ')[-1]}"][0]
        print(f"{name:44}  {per_processor:18,.0f}  {per_processor / base:6.2f}  {per_second:9,.0f}")


if __name__ == "__main__":
    main()
