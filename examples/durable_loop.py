"""A loop of your own, made durable: `ostinato.runs` keeps its state, and the trainer is not needed.

Run it, kill it whenever you like (``kill -9`` too), and run it again: it continues, and ends with the same numbers as a
run that was never killed. ``python examples/durable_loop.py [FOLDER] [ITERATIONS]``
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from ostinato.optim import load_optimizer_state_by_name, optimizer_state_by_name
from ostinato.runs import GenerationContent, GenerationWriter, RunFolder

SAVE_EVERY = 100  # iterations


def main(folder: Path, iterations: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    random = torch.Generator().manual_seed(0)
    done = 0

    with RunFolder(folder).open(recipe="example") as run:  # takes the lock: nobody else trains here
        newest = run.load_newest()  # verified; None in a new folder
        if newest is not None:
            model.load_state_dict(dict(newest.model))
            load_optimizer_state_by_name(optimizer, model.named_parameters(), newest.optimizer)
            random.set_state(newest.state["random"])
            done = newest.iteration
        print(f"starting at iteration {done}")
        run.begin_session(start_iteration=done, batch_size=64)

        writer = GenerationWriter(run).open()  # copies, then saves while the loop goes on
        while done < iterations:
            x = torch.rand(64, 2, generator=random)
            loss = torch.nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % SAVE_EVERY == 0 or done == iterations:
                writer.submit(
                    GenerationContent(
                        iteration=done,
                        model=model.state_dict(),
                        optimizer=optimizer_state_by_name(optimizer, model.named_parameters()),
                        state={"random": random.get_state()},
                    )
                )
        for result in writer.close():
            if result.error is not None:
                print(f"not saved: {result.error}")

    checksum = sum(value.detach().double().sum().item() for value in model.parameters())
    print(f"iteration {done}: the sum of all parameters is {checksum!r}")


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "durable_run"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 500,
    )
