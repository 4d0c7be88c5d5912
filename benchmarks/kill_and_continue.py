"""Kills a swap training again and again and compares what it ends with to a run that was never disturbed.

Every kill is a SIGKILL at a random moment: while the program starts, trains, saves, or tidies up. The same command is
started again until the run is finished; then its parameters, its optimizer and every loss in its logs must be equal,
bit for bit, to those of the undisturbed run. Runs follow one another until enough kills were made. The tiny model is
that of the tests; the real ones need some seconds a kill.

    python benchmarks/kill_and_continue.py [--kills 200] [--model tiny] [--workers 2] [--seed 0] [--folder DIR]

Exit status: 0 all runs were equal, 1 one was not; its folder is then kept and named.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from command_client import CommandServer, Kept, assert_equal_runs

from ostinato.faces.drawn import DrawnIdentity, write_drawn_folder
from ostinato.runs import RunFolder

FACES = 30


def command(root: Path, run: Path, options: argparse.Namespace) -> list[str | Path]:
    """The command that starts, continues and finishes a run."""
    words: list[str | Path] = ["swap", "train", "-A", root / "a", "-B", root / "b", "-m", run, "-b", "2"]
    words += ["-i", str(options.iterations), "-s", str(options.save_interval), "-I", "10", "--set", "seed=1"]
    words += ["--set", "augmentation.preview_images=2", "--set", f"loader.num_processes={options.workers}"]
    return words if options.model == "tiny" else [*words, "-t", options.model]


def where(run: Path) -> str:
    """What the process was at when it died, as far as its folder shows."""
    generations = run / "generations"
    if not (run / "run.json").exists():
        return "before the run was made"
    names = [entry.name for entry in generations.iterdir()] if generations.is_dir() else []
    if any(name.startswith(".tmp-") for name in names):
        return "amid writing a generation"
    if any(name.startswith(".trash-") for name in names):
        return "amid removing a generation"
    return "between saves"


def last_line(text: str) -> int:
    """The newest iteration that the process said it had saved; 0 if none."""
    saved = [line.split()[2].rstrip(",") for line in text.splitlines() if line.startswith("saved iteration ")]
    return int(saved[-1].replace(",", "")) if saved else 0


def killed_run(
    server: CommandServer, run: Path, words: list[str | Path], draw: random.Random, span: float, left: int
) -> collections.Counter[str]:
    """Kill one run up to ``left`` times, until it is finished; where it was hit."""
    places: collections.Counter[str] = collections.Counter()
    promised = 0
    while True:
        started = server.start(*words)
        if places.total() < left:
            time.sleep(draw.uniform(0.0, span))
            started.kill()
        status = started.wait()
        promised = max(promised, last_line(started.text))
        if status == 0:
            return places
        if status != -signal.SIGKILL:
            raise SystemExit(f"the command ended with status {status}:\n{started.text}")
        places[where(run)] += 1
        if promised:
            newest = RunFolder(run).load_newest()
            if newest is None or newest.iteration < promised:
                raise SystemExit(f"iteration {promised} was reported as saved and is not there: {run}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--model", choices=("tiny", "lightweight", "original"), default="tiny")
    parser.add_argument("--iterations", type=int, default=None, help="of each run; 120, or 12 for a real model")
    parser.add_argument("--save-interval", type=int, default=None, help="4, or 2 for a real model")
    parser.add_argument("--workers", type=int, default=2, help="threads that prepare faces")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; a temporary folder if left out")
    options = parser.parse_args()
    tiny = options.model == "tiny"
    options.iterations = options.iterations or (120 if tiny else 12)
    options.save_interval = options.save_interval or (4 if tiny else 2)
    root = options.folder or Path(tempfile.mkdtemp(prefix="kill_and_continue_"))
    root.mkdir(parents=True, exist_ok=True)
    for number, side in enumerate("ab"):
        write_drawn_folder(root / side, DrawnIdentity.from_seed(number), FACES, size=96)
    draw = random.Random(options.seed)
    places: collections.Counter[str] = collections.Counter()
    runs = 0
    began = time.monotonic()
    with CommandServer(root, {"XDG_CACHE_HOME": str(root / "cache")}, real_models=not tiny) as server:
        whole = root / "undisturbed"
        before = time.monotonic()
        status, text = server.run(*command(root, whole, options))
        if status:
            raise SystemExit(text)
        # Long enough for a start and some saves, short enough that most starts are killed.
        start = 0.5 if tiny else 2.5
        span = start + 4 * options.save_interval * (time.monotonic() - before) / options.iterations
        expected = Kept.read(whole)
        while places.total() < options.kills:
            run = root / f"run_{runs:04d}"
            hit = killed_run(server, run, command(root, run, options), draw, span, options.kills - places.total())
            places += hit
            runs += 1
            try:
                assert_equal_runs(Kept.read(run), expected)
            except AssertionError as difference:
                print(f"NOT EQUAL after {hit.total()} kills: {difference}\nThe folders are {whole} and {run}")
                return 1
    print(f"model {options.model}, {options.iterations} iterations a run, saved every {options.save_interval}")
    print(f"{places.total()} kills in {runs} runs, {time.monotonic() - began:.0f} s:")
    for place, count in places.most_common():
        print(f"  {place:30} {count:5}")
    print("All runs are equal bit for bit: parameters, optimizer, every loss; no iteration is twice or missing.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
