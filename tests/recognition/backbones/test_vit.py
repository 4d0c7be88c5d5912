"""Vision transformers: dropped paths and masked tokens."""

from __future__ import annotations

import pytest
import torch
from formula_backbone import formula_pictures, formula_tensor

from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.backbones.vit import (
    MASKED_TOKENS,
    TOKENS,
    DropPath,
    VisionTransformer,
    _with_masks,
    _without_some,
)


def small(*, masking: bool = False, drop_path: float = 0.0) -> VisionTransformer:
    network = VisionTransformer(
        "small",
        width=16,
        depth=2,
        drop_path=drop_path,
        masking=masking,
        embedding_size=4,
        half_precision=None,
        checkpointing=False,
    )
    network.initialize(torch.Generator().manual_seed(0))
    return network


def test_fifteen_of_144_tokens_are_masked() -> None:
    assert (TOKENS, MASKED_TOKENS) == (144, 15)


def test_kept_tokens_come_back_to_their_places_and_masks_stand_in_the_others() -> None:
    torch.manual_seed(0)
    tokens = formula_tensor(1, 3, TOKENS, 5)
    mask = torch.full((1, 1, 5), 9.0, dtype=torch.float64)
    kept, places = _without_some(tokens)
    assert kept.shape == (3, TOKENS - MASKED_TOKENS, 5)
    back = _with_masks(kept, mask, places)
    masked = (back == 9).all(dim=2)
    assert masked.sum(dim=1).tolist() == [MASKED_TOKENS] * 3
    assert torch.equal(back[~masked], tokens[~masked])
    assert not torch.equal(masked[0], masked[1])  # every sample has its own


def test_masking_is_for_training_and_follows_the_global_generator() -> None:
    network = small(masking=True)
    pictures = formula_pictures(2).float()
    seen: list[int] = []
    network.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    torch.manual_seed(1)
    first = network.train()(pictures)
    second = network(pictures)
    torch.manual_seed(1)
    again = network(pictures)
    network.eval()(pictures)
    assert seen == [129, 129, 129, 144]
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_the_mask_token_learns_where_tokens_are_masked_alone() -> None:
    pictures = formula_pictures(2).float()
    for masking in (True, False):
        network = small(masking=masking).train()
        (network(pictures) * torch.arange(4)).sum().backward()
        assert (network.mask_token.grad is not None) is masking


def test_drop_path_rises_from_the_first_block_to_the_last() -> None:
    rates = [block.drop_path.rate for block in build_backbone("vit_t", embedding_size=4, seed=0).blocks]
    assert rates == pytest.approx([0.1 * number / 11 for number in range(12)])


def test_drop_path_drops_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(2)
    drop = DropPath(0.25).train()
    values = drop(torch.ones(4000, 3, 2))
    samples = values.flatten(1)
    assert torch.equal(samples.amin(dim=1), samples.amax(dim=1))
    assert sorted(set(samples[:, 0].tolist())) == pytest.approx([0, 4 / 3])
    assert values.mean().item() == pytest.approx(1, abs=0.03)


def test_drop_path_rests_in_evaluation_and_draws_nothing_at_rate_zero() -> None:
    values = torch.ones(8, 3, 2)
    assert torch.equal(DropPath(0.5).eval()(values), values)
    before = torch.get_rng_state()
    DropPath(0.0).train()(values)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_last_rows_and_columns_of_pixels_belong_to_no_token() -> None:
    network = small().eval()
    pictures = formula_pictures(1).float()
    changed = pictures.clone()
    changed[:, :, 108:] = 0
    changed[:, :, :, 108:] = 0
    with torch.no_grad():
        assert torch.equal(network(pictures), network(changed))
