"""`ostinato recognition clean`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from people_pictures import write_people
from recognition_command import Recognition

from ostinato.config import RecognitionOptions, to_record
from ostinato.recognition.backbones import build_backbone
from ostinato.recognition.identities import pack_names
from ostinato.recognition.insightface import write_backbone_weights
from ostinato.recognition.verification.folder_embeddings import embed_folder
from ostinato.runs.content import GenerationContent
from ostinato.runs.folder import RunFolder
from ostinato.runs.row_cut import RowCut


def test_a_run_cleans_its_set_and_says_what_it_dropped(
    recognition: Recognition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = write_people(tmp_path / "people", 4, 3)
    backbone = build_backbone("mbf", embedding_size=16, seed=1).eval()
    found = embed_folder(backbone, people)
    own = torch.stack([torch.from_numpy(found.embeddings[found.labels == label]).mean(0) for label in range(4)])
    own[2] *= -1  # of another person, as it seems
    sub_centres = torch.stack([own, -own * 0.5], 1)
    sub_centres[2, 1] *= 0.0
    options = RecognitionOptions()
    model = options.model.model_copy(update={"backbone": "mbf", "embedding_size": 16})
    head = {"weight": RowCut(sub_centres.view(8, 16), 0, 8), "sub_centres": 2}
    identities = {"classes": 4, "names": pack_names(found.people)}
    state = {"trainer": {"updater": {"head": head}, "extensions": {"identities": identities}}}
    with RunFolder(tmp_path / "run").open(recipe="recognition") as run:
        run.begin_session(
            start_iteration=0,
            batch_size=8,
            config=to_record(options.model_copy(update={"model": model, "seed": 1})),
        )
        weights = {name: value.detach().clone() for name, value in backbone.state_dict().items()}
        run.commit(run.pack(GenerationContent(9, weights, state=state, reasons=("latest",))))
    (tmp_path / "clean").mkdir()
    out = tmp_path / "clean" / "train.rec"
    asked = ("clean", tmp_path / "run", people, out, "--device", "cpu")
    status, text, errors = recognition(*asked)
    assert (status, errors) == (0, ""), errors
    assert "mbf at iteration 9: 4 people, 2 centres each" in text
    assert "dropped: 3 of 12 pictures (25.0 %), 75 degrees or more" in text
    assert text.count(" degrees  class 2  ") == 3
    assert f"people without a picture now: 1 of 4 ({found.people[2]})" in text
    assert "9 pictures of 3 people" in text
    assert "train it for longer" not in text
    monkeypatch.setattr("ostinato.cli.recognition_clean._DOUBTFUL", 24.0)
    assert "train it for longer" in recognition(*asked, "--overwrite")[1]
    status, text, _ = recognition("inspect", out)
    assert status == 0
    assert "identities  3" in text

    assert "There already" in recognition(*asked)[2]
    assert recognition(*asked, "--degrees", "0")[0] == 2
    write_backbone_weights(backbone, tmp_path / "weights.pth")
    status, _, errors = recognition("clean", tmp_path / "weights.pth", people, out)
    assert status == 3
    assert "no class centres" in errors
