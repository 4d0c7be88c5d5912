"""What all swap models have in common: one encoder, one decoder for each side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ostinato.errors import ArgumentValueError
from ostinato.swap.models.keras_weights import keras_weights
from ostinato.swap.models.sub_model import SubModel

COLOR_ORDERS = ("rgb", "bgr")


class SwapModel(nn.Module):
    """A shared encoder and a decoder for each side.

    Faces go in and come out as RGB, float, 0..1, (.., 3, size, size). A model that was trained on BGR says so in
    ``color_order``, and its channels are turned round at its edges.

    Sub-modules: ``encoder``, and ``decoder_<side>`` for each side.

    :param name: the model's name, as in the options.
    :param encoder: from a picture to features.
    :param decoders: from features to one or more faces, smallest first, and then, with ``learn_mask``, a mask; by side.
    :param input_size: side of the square input, pixels.
    :param output_sizes: sides of the faces that a decoder gives, in its order; a mask has the size of the last.
    :param learn_mask: the decoders give a mask of the face as their last output.
    :param color_order: ``rgb``, or ``bgr`` for models trained elsewhere.
    """

    def __init__(
        self,
        name: str,
        encoder: SubModel,
        decoders: dict[str, SubModel],
        *,
        input_size: int,
        output_sizes: Sequence[int],
        learn_mask: bool = False,
        color_order: str = "rgb",
    ) -> None:
        super().__init__()
        if color_order not in COLOR_ORDERS:
            raise ArgumentValueError(
                f"There is no colour order {color_order!r}.", advice=f"Choose one of: {', '.join(COLOR_ORDERS)}."
            )
        self.name = name
        self.sides = tuple(decoders)
        self.input_size = input_size
        self.output_sizes = tuple(output_sizes)
        self.learn_mask = learn_mask
        self.color_order = color_order
        self.encoder = encoder
        for side, decoder in decoders.items():
            self.add_module(f"decoder_{side}", decoder)

    def forward(self, inputs: Tensor) -> list[list[Tensor]]:
        """Redraw the faces of every side by the side's own decoder.

        :param inputs: (sides, batch, 3, size, size), sides in the model's order.
        :returns: for each side its outputs, each (batch, channels, size, size), float32.
        :raises ArgumentValueError: the number of sides is not the model's.
        """
        if inputs.ndim != 5 or inputs.shape[0] != len(self.sides):
            raise ArgumentValueError(
                f"The model has {len(self.sides)} sides ({', '.join(self.sides)}), and the input has shape "
                f"{tuple(inputs.shape)}.",
                advice="Give one batch per side, as (sides, batch, 3, size, size).",
            )
        # One call for all sides: the encoder's weights are read, and its gradients written, once per update.
        features = self.encode(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return [self.decode(features[index], side) for index, side in enumerate(self.sides)]

    def encode(self, faces: Tensor) -> Tensor:
        """From faces (batch, 3, size, size) of any side to features (batch, channels, height, width)."""
        return self.encoder(self._turned(faces))[0]

    def decode(self, features: Tensor, side: str) -> list[Tensor]:
        """From features to faces of one side, and its mask with ``learn_mask``."""
        outputs = self.decoder(side)(features)
        faces = len(self.output_sizes)
        return [self._turned(face) for face in outputs[:faces]] + outputs[faces:]

    def decoder(self, side: str) -> SubModel:
        """The decoder of one side.

        :raises ArgumentValueError: the model has no such side.
        """
        if side not in self.sides:
            raise ArgumentValueError(
                f"The model has no side {side!r}.", advice=f"Its sides are: {', '.join(self.sides)}."
            )
        decoder = self.get_submodule(f"decoder_{side}")
        assert isinstance(decoder, SubModel)
        return decoder

    def inference_model(self, side: str) -> InferenceModel:
        """Cut the model down to what draws one side's faces: ``a_to_b`` is ``inference_model("b")``.

        The parts are shared with this model, not copied: they follow its training and its moves between devices.
        """
        return InferenceModel(self, side)

    def keras_layer_names(self) -> list[str]:
        """Faceswap's paths of all layers that have weights: ``encoder/conv_128_0_conv2d``, ..."""
        return list(dict.fromkeys(weight.path.rsplit("/", 1)[0] for weight in keras_weights(self)))

    def _turned(self, faces: Tensor) -> Tensor:
        return faces.flip(1) if self.color_order == "bgr" else faces


class InferenceModel(nn.Module):
    """The encoder and one decoder of a swap model.

    It carries what a converter must know: ``name``, ``side``, ``input_size``, ``output_sizes``, ``learn_mask``.
    """

    def __init__(self, model: SwapModel, side: str) -> None:
        super().__init__()
        self.name = f"{model.name}_inference"
        self.side = side
        self.input_size = model.input_size
        self.output_sizes = model.output_sizes
        self.learn_mask = model.learn_mask
        self.color_order = model.color_order
        self.encoder = model.encoder
        self.decoder = model.decoder(side)

    @torch.no_grad()
    def forward(self, faces: Tensor) -> list[Tensor]:
        """From RGB faces (batch, 3, size, size), 0..1, of anybody to this side's, and its mask if it has one."""
        turn = self.color_order == "bgr"
        outputs = self.decoder(self.encoder(faces.flip(1) if turn else faces)[0])
        count = len(self.output_sizes)
        return [face.flip(1) if turn else face for face in outputs[:count]] + outputs[count:]
