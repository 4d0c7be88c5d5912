"""The parameters of a model, or of its copies on several devices, as a trainer takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn
from torch.nn import Parameter

from ostinato.errors import ArgumentValueError
from ostinato.kvstore import replica_parameters
from ostinato.optim.argument_checks import require_text


def collect_params(net: nn.Module | Sequence[nn.Module], select: str | None = None) -> dict[str, list[Parameter]]:
    """Give the parameters by name, one for each copy of the model.

    :param net: a model, or what :func:`~ostinato.kvstore.replicate` made of it.
    :param select: a regular expression; names that it does not match from their beginning are left out.
    :raises ArgumentValueError: ``select`` is none.
    """
    collected = replica_parameters([net] if isinstance(net, nn.Module) else net)
    if select is None:
        return collected
    try:
        pattern = re.compile(require_text("select", select))
    except re.error as error:
        raise ArgumentValueError(
            f"select is {select!r}, which is no regular expression: {error}.", advice="Write for example '.*weight'."
        ) from error
    return {name: replicas for name, replicas in collected.items() if pattern.match(name)}
