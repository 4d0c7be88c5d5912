"""What the names under which losses are reported stand for, in words."""

from __future__ import annotations

from collections.abc import Sequence


def explain_loss_names(names: Sequence[str], output_sizes: Sequence[int]) -> str:
    """A sentence that says side, output and loss function of each reported loss.

    :param names: such as ``loss/b``, ``loss/b/ssim``, ``loss/b/128/ssim`` and ``loss/b/mask``.
    :param output_sizes: of the model, in pixels; a name without size belongs to the only one.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        _, _, rest = name.partition("/")
        side, *parts = rest.split("/")
        if name == "loss/total":
            continue
        if not parts:
            found.setdefault((side, ""), [])
            continue
        function = parts[-1]
        size = parts[0] if len(parts) > 1 else "" if function == "mask" else str(output_sizes[0])
        place = f"output {size} x {size} pixels, loss function" if size else "learned mask"
        found.setdefault((side, place), [])
        if size:
            found[side, place].append(function)
    whole = {side for side, place in found if place}  # the sum of a side says nothing that its parts do not
    clauses = []
    for (side, place), functions in found.items():
        if place or side not in whole:
            plural = "s" if len(functions) > 1 else ""
            ending = f": {place}{plural} {', '.join(functions)}".rstrip() if place else ""
            clauses.append(f"side {side}{ending}")
    text = "; ".join(clauses) or "it is the sum over the sides, each of which is finite"
    return f"{text[:1].upper()}{text[1:]}."
