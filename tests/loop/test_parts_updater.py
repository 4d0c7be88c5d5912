from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ostinato.loop import Part, PartsUpdater, StandardUpdater, Trainer, Turn
from ostinato.optim import GradientClipper


def linear(*sizes: int) -> nn.Module:
    return nn.Linear(*(sizes or (2, 2)))


def sgd(module: nn.Module, rate: float = 0.01, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum)


def size(*outputs: Tensor) -> Tensor:
    """A loss."""
    return torch.stack([output.square().mean() + output.mean() for output in outputs]).sum()


def loader(batches: int = 4, batch: int = 2) -> DataLoader[Any]:
    rows = batches * batch
    return DataLoader(TensorDataset(torch.linspace(-1, 1, 2 * rows).reshape(rows, 2)), batch_size=batch)


def weights(updater: StandardUpdater) -> list[Tensor]:
    return [value.clone() for model in updater.models.values() for value in model.state_dict().values()]


def changed(updater: StandardUpdater, models: dict[str, nn.Module]) -> list[str]:
    """The models that the next update changes."""
    before = {name: [p.detach().clone() for p in model.parameters()] for name, model in models.items()}
    updater.update()
    return [
        name
        for name, model in models.items()
        if any(not torch.equal(a, b) for a, b in zip(before[name], model.parameters(), strict=True))
    ]


def turns(updater: PartsUpdater, updates: int) -> list[str]:
    """The turns of each of the next updates, in one word each."""
    found = []
    for _ in range(updates):
        updater.update()
        found.append(" ".join(updater.turns))
    return found


def pair(**parts: Any) -> tuple[PartsUpdater, dict[str, nn.Module]]:
    """A generator and a discriminator that share what the generator made."""
    torch.manual_seed(5)
    models = {"generator": linear(), "discriminator": linear()}
    made = []

    def make(batch: Any, turn: Turn) -> Tensor:
        made.append(turn.part)
        return models["generator"](batch[0])

    updater = PartsUpdater(
        models,
        {name: sgd(model) for name, model in models.items()},
        loader(),
        [
            Part("generator", lambda b, t: size(models["discriminator"](t["fake"])), **parts.get("generator", {})),
            Part(
                "discriminator",
                lambda b, t: size(models["discriminator"](b[0])) - size(models["discriminator"](t.detached("fake"))),
                **parts.get("discriminator", {}),
            ),
        ],
        shared={"fake": make},
        **parts.get("updater", {}),
    )
    updater.made = made  # type: ignore[attr-defined]
    return updater, models


# --- the shapes of known recipes ------------------------------------------------------------------------------------


def test_a_vocoder_starts_its_parts_at_different_updates() -> None:
    """HiFiGAN, ParallelWaveGAN, the MelGANs: the discriminator comes in when the generator can already do something."""
    updater, models = pair(discriminator={"start": 3})
    assert [changed(updater, models) for _ in range(5)] == [["generator"]] * 3 + [["generator", "discriminator"]] * 2


def test_the_discriminator_may_start_first_without_what_the_generator_computes() -> None:
    updater, _ = pair(generator={"start": 2})
    assert turns(updater, 3) == ["discriminator", "discriminator", "generator discriminator"]


def test_vits_trains_two_optimizers_of_one_model_with_the_discriminator_first() -> None:
    model = nn.ModuleDict({"generator": linear(), "discriminator": linear()})
    made = []

    def make(batch: Any, turn: Turn) -> Tensor:
        made.append(turn.part)
        return model["generator"](batch[0])

    updater = PartsUpdater(
        model,
        {name: sgd(module) for name, module in model.items()},
        loader(),
        [
            Part("discriminator", lambda b, t: size(model["discriminator"](t.detached("wave")))),
            Part("generator", lambda b, t: size(model["discriminator"](t["wave"]))),
        ],
        shared={"wave": make},
    )
    assert turns(updater, 2) == ["discriminator generator"] * 2
    assert made == ["discriminator"] * 2  # once in an update, by the first who asks
    assert list(updater.models) == ["main"]


def test_jets_gives_the_discriminator_what_the_generator_made_before_its_step() -> None:
    updater, models = pair()
    before = copy.deepcopy(models["generator"])
    seen = []
    plain = updater.parts[1].loss

    def look(batch: Any, turn: Turn) -> Any:
        seen.append((turn.detached("fake"), before(batch[0])))
        return plain(batch, turn)

    updater.parts = (updater.parts[0], Part("discriminator", look))
    updater.update()
    assert updater.made == ["generator"]  # type: ignore[attr-defined]
    ((given_out, expected),) = seen
    assert torch.equal(given_out, expected)
    assert not given_out.requires_grad


def test_diffsinger_changes_from_one_phase_to_the_next_without_losing_a_batch() -> None:
    model = nn.ModuleDict({"acoustic": linear(), "diffusion": linear()})
    read = []

    def acoustic(batch: Any, turn: Turn) -> Tensor:
        read.append(batch[0])
        return size(model["acoustic"](batch[0]))

    def diffusion(batch: Any, turn: Turn) -> Tensor:
        read.append(batch[0])
        return size(model["diffusion"](model["acoustic"](batch[0])))

    updater = PartsUpdater(
        model,
        {"fs2": sgd(model["acoustic"]), "ds": sgd(model["diffusion"])},
        loader(batches=8),
        [Part("acoustic", acoustic, "fs2", stop=3), Part("diffusion", diffusion, "ds", start=3)],
    )
    parts = dict(model.items())
    assert [changed(updater, parts) for _ in range(6)] == [["acoustic"]] * 3 + [["diffusion"]] * 3
    assert torch.equal(torch.cat(read), torch.cat([batch[0] for batch in loader(batches=8)])[: 6 * 2])
    assert all(p.grad is None and not p.requires_grad for p in model["acoustic"].parameters())
    assert all(p.grad is not None for p in model["diffusion"].parameters())


def test_starganv2_vc_steps_the_discriminator_twice_and_then_the_generator_twice() -> None:
    models = {
        name: linear()
        for name in ("generator", "style_encoder", "mapping_network", "discriminator", "F0_model", "asr_model")
    }
    trained = ["generator", "style_encoder", "mapping_network", "discriminator"]
    used = []

    def discriminator(batch: Any, turn: Turn) -> Tensor:
        with torch.no_grad():
            fake = models["generator"](batch[0])
        return size(models["discriminator"](fake)) - size(models["discriminator"](batch[0]))

    def generator(batch: Any, turn: Turn) -> dict[str, Tensor]:
        style = models["style_encoder"](models["mapping_network"](batch[0]))
        fake = models["generator"](batch[0] + style)
        losses = {"adversarial": size(models["discriminator"](fake)), "f0": size(models["F0_model"](fake))}
        if turn.state.epoch >= 1:
            losses["consistency"] = size(models["asr_model"](fake))
        if turn.state.epoch >= 2:
            losses["class"] = size(models["discriminator"](fake) * 2)
        used.append(len(losses))
        return losses

    updater = PartsUpdater(
        models,
        {name: sgd(models[name]) for name in trained},
        loader(batches=2),
        [
            Part("discriminator_by_latent", discriminator, "discriminator"),
            Part("discriminator_by_reference", discriminator, "discriminator"),
            Part("generator_by_latent", generator, ["generator", "style_encoder", "mapping_network"]),
            Part("generator_by_reference", generator, "generator"),
        ],
    )
    every = "discriminator_by_latent discriminator_by_reference generator_by_latent generator_by_reference"
    assert changed(updater, models) == trained
    assert [every, *turns(updater, 5)] == [every] * 6
    assert used == [2] * 4 + [3] * 4 + [4] * 4
    assert all(p.grad is None for name in ("F0_model", "asr_model") for p in models[name].parameters())
    # What the style encoder learned is that of the first of the two turns alone.
    momenta = {
        name: updater.optimizers[name].state[next(iter(models[name].parameters()))]["momentum_buffer"]
        for name in trained
    }
    assert all(torch.isfinite(momentum).all() for momentum in momenta.values())


def test_wavernn_is_one_part() -> None:
    model = linear()
    updater = PartsUpdater(model, sgd(model), loader(), [Part("main", lambda b, t: size(model(b[0])))])
    assert turns(updater, 2) == ["main", "main"]


def test_one_part_trains_as_the_standard_updater_does() -> None:
    torch.manual_seed(1)
    model = linear()
    twin = copy.deepcopy(model)
    parts = PartsUpdater(model, sgd(model), loader(), [Part("main", lambda b, t: size(model(b[0])))])
    standard = StandardUpdater(twin, sgd(twin), loader(), loss_function=lambda result, batch: size(result))
    for _ in range(6):
        parts.update()
        standard.update()
    assert all(torch.equal(a, b) for a, b in zip(weights(parts), weights(standard), strict=True))


def test_two_parts_train_as_a_plain_loop_does() -> None:
    torch.manual_seed(5)
    generator, discriminator = linear(), linear()
    first, second = sgd(generator), sgd(discriminator)
    for epoch in range(2):
        for (x,) in loader():
            fake = generator(x)
            first.zero_grad()
            size(discriminator(fake)).backward()
            first.step()
            if epoch >= 1:
                second.zero_grad()
                (size(discriminator(x)) - size(discriminator(fake.detach()))).backward()
                second.step()
    updater, _ = pair(discriminator={"start": "1ep"})
    for _ in range(8):
        updater.update()
    plain = [p.detach() for model in (generator, discriminator) for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(weights(updater), plain, strict=True))


# --- when ------------------------------------------------------------------------------------------------------------


spans = st.builds(
    lambda start, length, every, repeat: {
        "start": start,
        "stop": None if length is None else start + length,
        "every": every,
        "repeat": repeat,
    },
    st.integers(0, 9),
    st.none() | st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 3),
)


@settings(max_examples=50)
@given(parts=st.lists(spans, min_size=1, max_size=3), cut=st.integers(0, 14))
def test_the_turns_are_those_that_one_would_count_by_hand(parts: list[dict[str, Any]], cut: int) -> None:
    expected = []
    for update in range(1, 15):
        names: list[str] = []
        for number, part in enumerate(parts):
            is_active = part["start"] < update <= (part["stop"] or update)
            if is_active and (update - part["start"] - 1) % part["every"] == 0:
                names += [str(number)] * part["repeat"]
        expected.append(" ".join(names))

    def make() -> PartsUpdater:
        model = nn.Linear(1, 1)
        optimizers = {str(number): torch.optim.SGD(model.parameters(), lr=0.1) for number in range(len(parts))}
        declared = [Part(str(n), lambda b, t: model(b).sum(), **settings) for n, settings in enumerate(parts)]
        return PartsUpdater(model, optimizers, [torch.ones(1, 1)] * 3, declared, allow_idle=True)

    first, second = make(), make()
    found = turns(first, cut)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert found + turns(second, 14 - cut) == expected


def test_every_counts_from_the_start() -> None:
    updater, _ = pair(generator={"every": 3, "start": 1})
    assert [("generator" in turn) for turn in turns(updater, 8)] == [
        False,
        True,
        False,
        False,
        True,
        False,
        False,
        True,
    ]


def test_repeat_takes_several_turns_in_one_update_and_computes_shared_outputs_anew() -> None:
    updater, _ = pair(generator={"repeat": 2})
    assert turns(updater, 2) == ["generator generator discriminator"] * 2
    assert updater.made == ["generator", "generator"] * 2  # type: ignore[attr-defined]


def test_thresholds_in_epochs() -> None:
    updater, _ = pair(generator={"stop": "2ep"}, discriminator={"start": (1, "epoch")})
    assert turns(updater, 9) == ["generator"] * 4 + ["generator discriminator"] * 4 + ["discriminator"]


def test_an_update_in_which_nothing_is_due_is_refused_before_a_batch_is_read() -> None:
    read = []

    def batches() -> Any:
        for value in range(9):
            read.append(value)
            yield torch.ones(1, 2)

    class Stream:
        def __iter__(self) -> Any:
            return batches()

    model = linear()
    part = Part("main", lambda b, t: size(model(b)), start=1)
    with pytest.raises(RuntimeError, match=r"Update 1 would read a batch and train no part of it: main has start=1\."):
        PartsUpdater(model, sgd(model), Stream(), [part]).update()
    assert read == []
    allowed = PartsUpdater(model, sgd(model), Stream(), [part], allow_idle=True)
    assert turns(allowed, 2) == ["", "main"]
    gap = [Part("main", part.loss, stop=2), Part("late", part.loss, "main", start=(3, "epoch"), every=2)]
    updater = PartsUpdater(model, sgd(model), Stream(), gap)
    assert turns(updater, 2) == ["main", "main"]
    with pytest.raises(RuntimeError, match=r"Update 3 .* main has start=0, stop=2; late has start='3ep', every=2"):
        updater.update()


def test_a_parameter_that_another_part_goes_on_to_train_is_not_frozen() -> None:
    model = nn.ModuleDict({"body": linear(), "warm": linear(), "head": linear()})

    def loss(name: str) -> Any:
        return lambda batch, turn: size(model[name](model["body"](batch[0])))

    optimizers = {
        "warm": torch.optim.SGD([*model["body"].parameters(), *model["warm"].parameters()], lr=0.1),
        "main": torch.optim.SGD([*model["body"].parameters(), *model["head"].parameters()], lr=0.1),
    }
    updater = PartsUpdater(
        model, optimizers, loader(), [Part("warm", loss("warm"), stop=1), Part("main", loss("head"), start=1)]
    )
    parts = dict(model.items())
    assert changed(updater, parts) == ["body", "warm"]
    assert changed(updater, parts) == ["body", "head"]
    assert [p.requires_grad for p in model["warm"].parameters()] == [False, False]


def test_an_optimizer_rests_with_its_state_while_its_part_is_frozen() -> None:
    updater, _ = pair(discriminator={"stop": 2})
    turns(updater, 2)
    before = copy.deepcopy(updater.optimizers["discriminator"].state_dict())
    turns(updater, 3)
    after = updater.optimizers["discriminator"].state_dict()
    assert all(torch.equal(before["state"][n]["momentum_buffer"], after["state"][n]["momentum_buffer"]) for n in (0, 1))
    assert updater.optimizers["generator"].state


def test_schedules_follow_iterations_epochs_or_the_turns_of_their_part() -> None:
    updater, _ = pair(discriminator={"start": 3})
    make = torch.optim.lr_scheduler.LambdaLR
    updater.schedulers = {
        "generator": (make(updater.optimizers["generator"], lambda n: n), "epoch"),
        "discriminator": (make(updater.optimizers["discriminator"], lambda n: n), "part"),
        "all": (make(updater.optimizers["generator"], lambda n: n), "iteration"),
    }
    turns(updater, 5)
    assert {name: schedule.last_epoch for name, (schedule, _) in updater.schedulers.items()} == {
        "generator": 1,
        "discriminator": 2,
        "all": 5,
    }


# --- what a turn does -----------------------------------------------------------------------------------------------


def test_a_turn_leaves_no_gradients_in_what_it_does_not_train() -> None:
    updater, models = pair(discriminator={"start": 1})
    updater.update()
    assert all(p.grad is None for p in models["discriminator"].parameters())
    assert all(p.grad is not None for p in models["generator"].parameters())


def test_losses_and_gradient_norms_are_reported_under_the_name_of_the_part() -> None:
    updater, models = pair(
        generator={"report_norm": True, "clip": 1e-3}, discriminator={"report_norm": True, "clip": GradientClipper()}
    )
    observed: dict[str, Any] = {}
    trainer = Trainer(updater, (1, "iteration"), extensions=[lambda t: observed.update(t.observation)])
    trainer.run()
    assert set(observed) == {f"{name}/{what}" for name in models for what in ("loss", "grad_norm")}
    after = {
        name: torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
        for name, model in models.items()
    }
    assert observed["generator/grad_norm"] > 1e-3
    assert float(after["generator"]) == pytest.approx(1e-3, rel=1e-2)
    assert torch.allclose(observed["discriminator/grad_norm"], after["discriminator"])
    assert not any(value.requires_grad for value in observed.values())


def test_several_losses_are_reported_one_by_one_and_main_or_their_sum_is_trained() -> None:
    model = linear()
    observed: list[dict[str, Any]] = []

    def losses(batch: Any, turn: Turn) -> dict[str, Tensor]:
        out = model(batch[0]).mean()
        return {"a": out, "b": out * 2} | ({"main": out * 5} if turn.state.iteration else {})

    updater = PartsUpdater(model, sgd(model, rate=0.0), loader(batches=1), [Part("main", losses)])
    Trainer(updater, (2, "iteration"), extensions=[lambda t: observed.append(dict(t.observation))]).run()
    assert [sorted(entry) for entry in observed] == [["main/a", "main/b", "main/loss"]] * 2
    assert [float(entry["main/loss"] / entry["main/a"]) for entry in observed] == pytest.approx([3.0, 5.0])


def test_a_loss_scaler_serves_every_turn() -> None:
    updater, _ = pair(generator={"repeat": 2, "clip": 1.0})
    plain, _ = pair(generator={"repeat": 2, "clip": 1.0})
    updater.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**4)
    for _ in range(3):
        updater.update()
        plain.update()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights(updater), weights(plain), strict=True))
    assert updater.state_dict()["scaler"]["_growth_tracker"] == 9


def test_mistakes_are_named() -> None:
    model, other = linear(), linear()

    def updater(part: Part, **settings: Any) -> PartsUpdater:
        return PartsUpdater({"a": model, "b": other}, {"a": sgd(model), "b": sgd(other)}, loader(), [part], **settings)

    with pytest.raises(RuntimeError, match="'a' depends on no parameter of its optimizers"):
        updater(Part("a", lambda b, t: size(other(b[0])))).update()
    with pytest.raises(TypeError, match="loss function of the part 'a' returned NoneType, not a loss"):
        updater(Part("a", lambda b, t: None)).update()  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match=r"No shared output is named 'fake'\. There are: real"):
        updater(Part("a", lambda b, t: t["fake"]), shared={"real": lambda b, t: b}).update()
    with pytest.raises(ValueError, match=r"steps the optimizer 'c', and there is none of that name\. There are: a, b"):
        updater(Part("c", lambda b, t: size(b[0])))
    with pytest.raises(ValueError, match="Several parts have the name 'a'"):
        PartsUpdater(model, {"a": sgd(model)}, [], [Part("a", max), Part("a", min)])
    with pytest.raises(ValueError, match="The schedule 'c' follows the steps of an optimizer"):
        updater(Part("a", max), schedulers={"c": (None, "part")})
    with pytest.raises(ValueError, match="Use one of iteration, epoch, part"):
        updater(Part("a", max), schedulers={"a": (None, "turn")})
    with pytest.raises(ValueError, match="Use one of iteration, epoch"):
        StandardUpdater(model, sgd(model), [], schedulers={"main": (None, "part")})
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(RuntimeError, match="'a' trains nothing: its optimizers hold no parameter"):
        updater(Part("a", lambda b, t: size(other(b[0])))).update()


# --- state ----------------------------------------------------------------------------------------------------------


def noisy(seed: int) -> PartsUpdater:
    """Everything that could differ after a resume: dropout, shuffling, shared graphs, schedules, phases, memory."""
    torch.manual_seed(seed)
    models = {
        "generator": nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.4), nn.Linear(4, 2)),
        "discriminator": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.2)),
        "helper": nn.Linear(2, 2),
    }
    optimizers = {
        "generator": torch.optim.Adam(models["generator"].parameters(), lr=0.01),
        "discriminator": sgd(models["discriminator"]),
        "helper": torch.optim.AdamW(models["helper"].parameters(), lr=0.01),
    }
    generator, discriminator = models["generator"], models["discriminator"]
    data = TensorDataset(torch.linspace(-1, 1, 44).reshape(22, 2))
    return PartsUpdater(
        models,
        optimizers,
        DataLoader(data, batch_size=4, shuffle=True),
        [
            Part("discriminator", lambda b, t: size(discriminator(t.detached("fake"))), start=3, repeat=2),
            Part("helper", lambda b, t: size(models["helper"](b[0])), stop=(2, "epoch"), every=2),
            Part(
                "generator",
                lambda b, t: size(discriminator(t["fake"])),
                start="1ep",
                every=2,
                clip=GradientClipper("autoclip", 3.0),
            ),
            Part("always", lambda b, t: size(models["helper"](b[0]) * 0.5 + t.detached("fake")), "helper", stop=17),
        ],
        shared={"fake": lambda b, t: generator(b[0])},
        schedulers={
            "generator": (torch.optim.lr_scheduler.StepLR(optimizers["generator"], 2, 0.7), "part"),
            "discriminator": (torch.optim.lr_scheduler.ExponentialLR(optimizers["discriminator"], 0.9), "epoch"),
            "helper": (torch.optim.lr_scheduler.ExponentialLR(optimizers["helper"], 0.99), "iteration"),
        },
    )


@settings(max_examples=20)
@given(cuts=st.sets(st.integers(1, 25), max_size=4))
def test_killed_and_continued_anywhere_it_has_the_same_parameters_bit_for_bit(cuts: set[int]) -> None:
    straight = noisy(3)
    expected = turns(straight, 26)
    updater = noisy(3)
    found: list[str] = []
    for iteration in range(1, 27):
        found += turns(updater, 1)
        if iteration in cuts:
            state = copy.deepcopy(updater.state_dict())
            updater = noisy(iteration + 100)  # another seed: everything has to come from the state
            updater.load_state_dict(state)
    assert found == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(updater), weights(straight), strict=True))
    assert updater.state == straight.state
    assert [p.requires_grad for m in updater.models.values() for p in m.parameters()] == [
        p.requires_grad for m in straight.models.values() for p in m.parameters()
    ]


def test_going_back_to_an_earlier_state_thaws_what_was_frozen_since() -> None:
    updater, _ = pair(discriminator={"stop": 2})
    turns(updater, 1)
    early = copy.deepcopy(updater.state_dict())
    turns(updater, 3)
    updater.load_state_dict(early)
    assert turns(updater, 2) == ["generator discriminator", "generator"]


def test_a_state_of_another_format_is_refused_and_changes_nothing() -> None:
    updater, _ = pair()
    state = copy.deepcopy(updater.state_dict())
    state["parts"]["format"] = 2
    updater.update()
    before = weights(updater)
    with pytest.raises(RuntimeError, match="saved parts have format 2; this version reads format 1"):
        updater.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(before, weights(updater), strict=True))


def test_a_part_that_the_saved_state_does_not_know_starts_fresh() -> None:
    updater, _ = pair()
    turns(updater, 3)
    state = copy.deepcopy(updater.state_dict())
    del state["parts"]["active_updates"]["generator"]
    other, _ = pair(generator={"every": 2})
    other.load_state_dict(state)
    assert turns(other, 2) == ["generator discriminator", "discriminator"]


@pytest.mark.parametrize("loss", [lambda batch, turn: torch.tensor(1.0), lambda batch, turn: turn.detached("out")])
def test_a_loss_without_a_graph_is_named_with_its_part(loss: Any) -> None:
    net = linear()
    shared = {"out": lambda batch, turn: size(net(batch[0]))}
    updater = PartsUpdater({"a": net}, {"a": sgd(net)}, loader(), [Part("a", loss)], shared=shared)
    with pytest.raises(RuntimeError, match="The loss of the part 'a' depends on no parameter of its optimizers"):
        updater.update()


@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_scaler_leaves_alone_an_optimizer_that_the_loss_does_not_reach(clip: float | None) -> None:
    net, other = linear(), linear()
    scaler = torch.amp.GradScaler("cpu")
    part = Part("a", lambda batch, turn: size(net(batch[0])), ["a", "b"], clip=clip)
    updater = PartsUpdater({"a": net, "b": other}, {"a": sgd(net), "b": sgd(other)}, loader(), [part], scaler=scaler)
    assert changed(updater, {"a": net, "b": other}) == ["a"]
