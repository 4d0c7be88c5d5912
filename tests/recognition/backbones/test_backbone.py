"""What every backbone promises: shapes, memory formats, precision, checkpoints, compiling."""

from __future__ import annotations

import copy

import pytest
import torch
from formula_backbone import fill_by_formula, formula_pictures, small_backbone
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError
from ostinato.recognition.backbones import Backbone, build_backbone

FAMILIES = ("iresnet", "mobilefacenet", "vit")


def pictures(count: int = 2) -> Tensor:
    return formula_pictures(count).float()


def in_training(backbone: Backbone, given: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """The embeddings, gradients and statistics of one training step, with the same random numbers every time."""
    torch.manual_seed(5)
    backbone.train().zero_grad()
    embeddings = backbone(given)
    (embeddings * torch.linspace(-1, 1, embeddings.shape[1])).sum().backward()
    gradients = {name: p.grad for name, p in backbone.named_parameters() if p.grad is not None}
    return embeddings.detach(), gradients, {name: buffer.clone() for name, buffer in backbone.named_buffers()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_have_the_asked_size_and_one_picture_is_a_batch(family: str) -> None:
    backbone = small_backbone(family, embedding_size=24).eval()
    with torch.no_grad():
        two, one = backbone(pictures()), backbone(pictures(1))
    assert two.shape == (2, 24)
    assert two.dtype == torch.float32
    torch.testing.assert_close(one, two[:1], rtol=1e-4, atol=1e-4 * two.abs().max().item())


@pytest.mark.parametrize("family", FAMILIES)
def test_channels_last_pictures_and_weights_give_the_same_numbers(family: str) -> None:
    backbone = small_backbone(family, embedding_size=16).eval()
    contiguous = pictures()
    with torch.no_grad():
        expected = backbone(contiguous)
        given = backbone(contiguous.contiguous(memory_format=torch.channels_last))
        moved = backbone.to(memory_format=torch.channels_last)(contiguous.contiguous(memory_format=torch.channels_last))
    for found in (given, moved):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpointing_changes_no_number(family: str) -> None:
    plain = small_backbone(family, embedding_size=8, checkpointing=False)
    saving = small_backbone(family, embedding_size=8, checkpointing=True)
    given = pictures()
    expected, found = in_training(plain, given), in_training(saving, given)
    assert torch.equal(expected[0], found[0])
    assert_same(expected[1], found[1])
    assert_same(expected[2], found[2])
    # A second step starts from the same random numbers, whatever the first one computed twice.
    assert_same(in_training(plain, given)[2], in_training(saving, given)[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpointing_leaves_the_generator_where_a_plain_step_leaves_it(family: str) -> None:
    states = []
    for checkpointing in (False, True):
        in_training(small_backbone(family, embedding_size=8, checkpointing=checkpointing), pictures())
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpointing_keeps_fewer_activations(family: str) -> None:
    def kept(checkpointing: bool) -> int:
        backbone = small_backbone(family, embedding_size=8, checkpointing=checkpointing).train()
        own = {parameter.data_ptr() for parameter in backbone.parameters()}
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in own:
                sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            backbone(pictures())
        return sum(sizes)

    assert kept(True) < kept(False) / 2


def test_evaluation_and_frozen_networks_take_no_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Tensor:
        raise AssertionError("a checkpoint was taken")

    for module in ("iresnet", "mobilefacenet", "vit"):
        monkeypatch.setattr(f"ostinato.recognition.backbones.{module}.checkpointed", refuse)
    for family in FAMILIES:
        backbone = small_backbone(family, embedding_size=8, checkpointing=True)
        backbone.eval()(pictures())
        with torch.no_grad():
            backbone.train()(pictures())


def dtypes_of_layers(backbone: Backbone, given: Tensor) -> dict[str, torch.dtype]:
    """What each layer without parts gave, by name."""
    found: dict[str, torch.dtype] = {}
    for name, module in backbone.named_modules():
        if not list(module.children()) and not isinstance(module, (nn.Dropout, nn.Flatten)):

            def note(_: nn.Module, __: object, output: Tensor, name: str = name) -> None:
                found[name] = output.dtype

            module.register_forward_hook(note)
    backbone(given)
    return found


def test_half_precision_is_where_the_published_networks_have_it() -> None:
    half, single = torch.bfloat16, torch.float32

    def found(family: str, autocast_outside: bool) -> dict[str, torch.dtype]:
        backbone = small_backbone(family, embedding_size=8, half_precision=half).eval()
        with torch.no_grad(), torch.autocast("cpu", half, enabled=autocast_outside):
            return dtypes_of_layers(backbone, pictures(1))

    residual = found("iresnet", False)
    assert {residual[name] for name in ("conv1", "layer1.0.conv2", "layer4.0.bn3", "bn2")} == {half}
    assert {residual["fc"], residual["features"]} == {single}
    for autocast_outside in (False, True):
        mobile = found("mobilefacenet", autocast_outside)
        assert {dtype for name, dtype in mobile.items() if name.startswith("layers.")} == {half}
        assert {dtype for name, dtype in mobile.items() if not name.startswith("layers.")} == {single}
        transformer = found("vit", autocast_outside)
        linear = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
        assert {dtype for name, dtype in transformer.items() if name.endswith(linear)} == {half}
        assert {dtype for name, dtype in transformer.items() if name.startswith(("norm", "feature."))} == {single}


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("iresnet", torch.bfloat16),
        ("mobilefacenet", torch.float16),
        ("mobilefacenet", torch.bfloat16),
        ("vit", torch.float16),
    ],
)
def test_embeddings_in_half_precision_are_float32_and_near(family: str, dtype: torch.dtype) -> None:
    plain = small_backbone(family, embedding_size=64).eval()
    half = small_backbone(family, embedding_size=64, half_precision=dtype).eval()
    for network in (plain, half):
        fill_by_formula(network)
    with torch.no_grad():
        whole, part = plain(pictures(1)), half(pictures(1))
    assert part.dtype == torch.float32
    assert 0 < torch.linalg.vector_norm(whole - part) < 0.1 * torch.linalg.vector_norm(whole)


def test_gradients_in_half_precision_are_float32() -> None:
    backbone = small_backbone("vit", half_precision=torch.bfloat16, checkpointing=True)
    _, gradients, _ = in_training(backbone, pictures())
    assert {gradient.dtype for gradient in gradients.values()} == {torch.float32}
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients.values())


def test_true_means_float16() -> None:
    assert build_backbone("mbf", embedding_size=4, half_precision=True, seed=0).half_precision == torch.float16


@pytest.mark.parametrize("family", FAMILIES)
def test_double_networks_compute_in_double(family: str) -> None:
    backbone = small_backbone(family, embedding_size=8).double().eval()
    with torch.no_grad():
        single = copy.deepcopy(backbone).float()(pictures())
        double = backbone(pictures().double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4 * double.abs().max().item())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (torch.zeros(3, 112, 112), r"\[3, 112, 112\]"),
        (torch.zeros(1, 1, 112, 112), r"\[1, 1, 112, 112\]"),
        (torch.zeros(1, 3, 128, 128), r"\[1, 3, 128, 128\]"),
        (torch.zeros(1, 112, 112, 3), r"\[1, 112, 112, 3\]"),
        (torch.zeros(1, 3, 112, 112, dtype=torch.uint8), "uint8"),
    ],
)
def test_other_pictures_are_refused(wrong: Tensor, said: str) -> None:
    with pytest.raises(ArgumentValueError, match=said):
        build_backbone("mbf", embedding_size=4, seed=0).eval()(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_network_is_one_graph_and_gives_the_same_numbers(family: str) -> None:
    # The backend captures the graph and its gradient without generating code, so no compiler has to be there.
    backbone = small_backbone(family).eval()
    compiled = torch.compile(backbone, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(pictures()), backbone(pictures()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["iresnet", "vit"])
def test_a_compiled_network_with_checkpoints_trains_as_a_plain_one_does(family: str) -> None:
    plain = small_backbone(family, embedding_size=8, checkpointing=False)
    compiled = small_backbone(family, embedding_size=8, checkpointing=True)
    expected = in_training(plain, pictures())
    compiled.compile(backend="aot_eager")
    found = in_training(compiled, pictures())
    assert torch.equal(expected[0], found[0])
    assert_same(expected[1], found[1])
    assert_same(expected[2], found[2])
