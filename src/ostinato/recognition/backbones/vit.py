"""Vision transformers for faces: 144 tokens of 9 x 9 pixels, no class token, an embedding from all tokens together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ostinato.recognition.backbones.backbone import IMAGE_SIZE, Backbone
from ostinato.recognition.backbones.checkpointing import checkpointed
from ostinato.recognition.backbones.first_values import reset_as_torch_does, reset_norm
from ostinato.recognition.backbones.precision import at_least_float32, full_section, half_section

PATCH = 9
TOKENS = (IMAGE_SIZE // PATCH) ** 2
"""Tokens of a picture; the last four rows and columns of pixels belong to none."""
HEADS = 8
MASKED_TOKENS = TOKENS - int(TOKENS * 0.9)
"""How many tokens are masked where masking is on. The published networks were trained with a tenth of the tokens masked
whatever share their names ("mask_005") and settings say."""


class PatchEmbedding(nn.Module):
    """One token of ``width`` numbers from each 9 x 9 pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, PATCH, PATCH)

    def forward(self, pictures: Tensor) -> Tensor:
        """``[B, 3, 112, 112]`` to ``[B, 144, width]``."""
        return self.proj(pictures).flatten(2).transpose(1, 2)


class DropPath(nn.Module):
    """Leave a branch out, sample by sample, and scale what is kept so that the mean stays.

    It draws from the global generator of its device.

    :param rate: how often a sample goes without the branch, 0 to below 1.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """``[B, tokens, width]``, in and out."""
        if self.rate == 0 or not self.training:
            return values
        kept = values.new_empty((len(values), 1, 1), dtype=torch.float32).bernoulli_(1 - self.rate)
        return values * (kept / (1 - self.rate)).to(values.dtype)

    def extra_repr(self) -> str:
        """Show the rate."""
        return f"{self.rate:.4g}"


class Attention(nn.Module):
    """Self-attention of eight heads. Queries, keys and values are multiplied in float32 in any case."""

    def __init__(self, width: int, half_precision: torch.dtype | None) -> None:
        super().__init__()
        self.half_precision = half_precision
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, tokens, width]``, in and out."""
        batch, count, width = tokens.shape
        with half_section(self.half_precision, tokens.device):
            # [3, batch, heads, tokens, width of a head]
            parts = self.qkv(tokens).reshape(batch, count, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        with full_section(tokens.device):
            queries, keys, values = at_least_float32(parts).unbind(0)
            mixed = functional.scaled_dot_product_attention(queries, keys, values)
        with half_section(self.half_precision, tokens.device):
            return self.proj(mixed.transpose(1, 2).reshape(batch, count, width))


class FeedForward(nn.Module):
    """Two linear layers with ReLU6 between, four times as wide inside."""

    def __init__(self, width: int, half_precision: torch.dtype | None) -> None:
        super().__init__()
        self.half_precision = half_precision
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, tokens, width]``, in and out."""
        with half_section(self.half_precision, tokens.device):
            return self.fc2(functional.relu6(self.fc1(tokens)))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer, each after a layer norm and added to what came in."""

    def __init__(self, width: int, drop_path: float, half_precision: torch.dtype | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.attn = Attention(width, half_precision)
        self.mlp = FeedForward(width, half_precision)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, tokens, width]``, in and out."""
        tokens = tokens + self.drop_path(self.attn(self.norm1(tokens)))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class VisionTransformer(Backbone):
    """A transformer over the tokens of a picture.

    In half precision the linear layers inside the blocks are computed in half; attention itself, the sums, the last
    layer norm and the head in float32.

    :param width: numbers in a token.
    :param depth: blocks.
    :param drop_path: how often the last block is left out for a sample; it rises from 0 at the first one.
    :param masking: mask tokens in training, see :data:`MASKED_TOKENS`.
    :param checkpointing: compute every block again for the backward pass, to save memory.
    """

    def __init__(
        self,
        name: str,
        *,
        width: int,
        depth: int,
        drop_path: float,
        masking: bool,
        embedding_size: int,
        half_precision: torch.dtype | None,
        checkpointing: bool,
    ) -> None:
        super().__init__(name, embedding_size, half_precision)
        self.masking = masking
        self.checkpointing = checkpointing
        self.pos_embed = nn.Parameter(torch.empty(1, TOKENS, width))
        # Gets a gradient only where tokens are masked; published files have it in any case.
        self.mask_token = nn.Parameter(torch.empty(1, 1, width))
        self.patch_embed = PatchEmbedding(width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, drop_path * number / (depth - 1), half_precision) for number in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.feature = nn.Sequential(
            nn.Linear(TOKENS * width, width, bias=False),
            nn.BatchNorm1d(width, eps=2e-5),
            nn.Linear(width, embedding_size, bias=False),
            nn.BatchNorm1d(embedding_size, eps=2e-5),
        )

    def initialize(self, generator: torch.Generator | None) -> None:
        nn.init.trunc_normal_(self.pos_embed, std=0.02, generator=generator)
        nn.init.normal_(self.mask_token, std=0.02, generator=generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                reset_as_torch_does(module, generator)
            elif isinstance(module, (nn.BatchNorm1d, nn.LayerNorm)):
                reset_norm(module)

    def embed(self, pictures: Tensor) -> Tensor:
        tokens = self.patch_embed(pictures) + self.pos_embed
        places = None
        if self.masking and self.training:
            tokens, places = _without_some(tokens)
        checkpoints = self.checkpointing and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            tokens = checkpointed([block], tokens) if checkpoints else block(tokens)
        with full_section(pictures.device):
            tokens = self.norm(at_least_float32(tokens))
            if places is not None:
                tokens = _with_masks(tokens, self.mask_token, places)
            return self.feature(tokens.flatten(1))


def _without_some(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Take the masked tokens away, other ones in every sample, drawn from the global generator of the device.

    :returns: the tokens that are left, in the order of what was drawn, and for every place of the picture the number
        of its token in that order; numbers from the count of those left on have none.
    """
    order = torch.rand(tokens.shape[:2], device=tokens.device).argsort(dim=1)
    left = order[:, : TOKENS - MASKED_TOKENS].unsqueeze(2).expand(-1, -1, tokens.shape[2])
    return tokens.gather(1, left), order.argsort(dim=1)


def _with_masks(tokens: Tensor, mask: Tensor, places: Tensor) -> Tensor:
    """Put tokens back to their places, and the mask token where there is none."""
    masks = mask.to(tokens.dtype).expand(len(tokens), MASKED_TOKENS, -1)
    return torch.cat([tokens, masks], dim=1).gather(1, places.unsqueeze(2).expand(-1, -1, tokens.shape[2]))
