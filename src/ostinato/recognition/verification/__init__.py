"""Verification: telling from embeddings whether two pictures show the same person, and how well that is told."""

from __future__ import annotations

from ostinato.recognition.verification.acceptance import Acceptance, acceptance_by_folds
from ostinato.recognition.verification.embedding import Embeddings, embed_images
from ostinato.recognition.verification.fold_accuracy import FoldAccuracy, accuracy_by_folds
from ostinato.recognition.verification.folds import Fold, cut_folds
from ostinato.recognition.verification.pair_embedding import PairShare, PairVerification, verify_pairs
from ostinato.recognition.verification.pair_file import read_pair_file, write_pair_file
from ostinato.recognition.verification.pair_set import PairSet
from ostinato.recognition.verification.result import VerificationResult, verify
from ostinato.recognition.verification.roc_curve import RocCurve, roc_curve
from ostinato.recognition.verification.templates import pair_scores, template_embeddings

__all__ = [
    "Acceptance",
    "Embeddings",
    "Fold",
    "FoldAccuracy",
    "PairSet",
    "PairShare",
    "PairVerification",
    "RocCurve",
    "VerificationResult",
    "acceptance_by_folds",
    "accuracy_by_folds",
    "cut_folds",
    "embed_images",
    "pair_scores",
    "read_pair_file",
    "roc_curve",
    "template_embeddings",
    "verify",
    "verify_pairs",
    "write_pair_file",
]
