"""How the results of verification are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.recognition.verification import Acceptance, PairSet, PairVerification, VerificationResult
    from ostinato.recognition.verification.template_folder import TemplateSet

_LABEL = 16


def verification_lines(pairs: PairSet, verification: PairVerification) -> Iterable[str]:
    """The result of one set of pairs, line by line."""
    result = verification.result
    yield (
        f"{pairs.name}: {_count(result.pairs, 'pair')} of {_count(verification.pictures, 'picture')} "
        f"({result.same_pairs:,} same, {result.different_pairs:,} different), {_count(pairs.folds, 'fold')}"
    )
    outcomes = result.accuracy.outcomes
    accuracies = [outcome.accuracy for outcome in outcomes]
    spread = f"folds from {_percent(min(accuracies))} to {_percent(max(accuracies))}" if len(outcomes) > 1 else ""
    yield _row("accuracy", f"{_percent(result.accuracy.mean)} ± {100 * result.accuracy.std:.2f}", spread)
    yield _row("threshold", f"{result.accuracy.threshold:.3f}", _threshold(result))
    for acceptance in result.acceptances:
        yield _acceptance_row(acceptance)
    yield _row("XNorm", f"{result.xnorm:.4g}", "mean length of the embeddings before they are normalised")
    if result.zero_embeddings:
        yield _row(
            "zero",
            f"{result.zero_embeddings:,}",
            f"of {2 * result.pairs:,} embeddings are zero: these pictures are equally far from everybody",
        )
    rate = verification.embedded / max(verification.seconds, 1e-9)
    yield _row("time", f"{verification.seconds:.1f} s", f"{rate:,.0f} pictures a second, each plain and mirrored")
    for note in pairs.notes:
        yield f"  {note}"


def template_lines(templates: TemplateSet, rates: Iterable[tuple[float, float, float]]) -> Iterable[str]:
    """The result of one set of templates, line by line.

    :param rates: the rate of false accepts asked for, that of true accepts, and the nearest rate that was measured.
    """
    same = int(templates.same.sum())
    different = len(templates.same) - same
    yield (
        f"{templates.name}: {_count(len(templates.same), 'pair')} of {templates.template_count:,} "
        f"templates with {_count(len(templates.pictures), 'picture')} ({same:,} same, {different:,} different)"
    )
    for target, tar, near in rates:
        remark = f"at the nearest measured FAR, {_rate(near)}"
        if target * different < 1:
            remark += f"; {different:,} different pairs are too few for this rate"
        yield _row(f"TAR at {_rate(target)}", _percent(tar), remark)


def _acceptance_row(acceptance: Acceptance) -> str:
    label = f"TAR at {_rate(acceptance.target)}"
    if not acceptance.is_supported:
        return _row(label, "-", acceptance.remark)
    measured = f"measured FAR {_rate(acceptance.far)}"
    remark = (
        acceptance.remark
        or f"rests on about {acceptance.support:,.0f} of {acceptance.different_pairs:,} different pairs"
    )
    return _row(label, f"{_percent(acceptance.tar)} ± {100 * acceptance.tar_std:.2f}", f"{measured}; {remark}")


def _threshold(result: VerificationResult) -> str:
    # Embeddings have length 1, so that a squared distance is 2 - 2 cosines.
    return f"same person if the squared distance is below: a cosine above {1 - result.accuracy.threshold / 2:.3f}"


def _row(label: str, value: str, remark: str = "") -> str:
    return f"  {label:<{_LABEL}} {value:<18} {remark}".rstrip()


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _rate(share: float) -> str:
    return f"{100 * share:.4g} %"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
