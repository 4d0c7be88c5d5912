from __future__ import annotations

import pytest

from ostinato.config import RecognitionOptions, check_together, read_options
from ostinato.config.recognition_presets import PUBLISHED_SETS, RECOGNITION_PRESETS, recognition_preset
from ostinato.errors import UsageError

# name, network, margin (A ArcFace 0.5, C CosFace 0.4), sampling rate, filter, optimizer, rate, weight decay, batch of
# a device, accumulation, set, epochs, warm-up epochs, verification every, its targets, further augmentation
PUBLISHED = """
    3millions mbf C 0.1 0 sgd 0.1 0.0005 512 1 synthetic 30 -1 2000 - -
    glint360k_mbf mbf C 1.0 0 sgd 0.1 0.0001 128 1 glint360k 20 0 2000 V -
    glint360k_r100 r100 C 1.0 0 sgd 0.1 0.0001 128 1 glint360k 20 0 2000 V -
    glint360k_r50 r50 C 1.0 0 sgd 0.1 0.0001 128 1 glint360k 20 0 2000 V -
    ms1mv2_mbf mbf A 1.0 0 sgd 0.1 0.0001 128 1 faces_emore 40 0 2000 V -
    ms1mv2_r100 r100 A 1.0 0 sgd 0.1 0.0005 128 1 faces_emore 20 0 2000 V -
    ms1mv2_r50 r50 A 1.0 0 sgd 0.1 0.0005 128 1 faces_emore 20 0 2000 V -
    ms1mv3_mbf mbf A 1.0 0 sgd 0.1 0.0001 128 1 ms1m-retinaface-t1 40 0 2000 V -
    ms1mv3_r100 r100 A 1.0 0 sgd 0.1 0.0005 128 1 ms1m-retinaface-t1 20 0 2000 V -
    ms1mv3_r50 r50 A 1.0 0 sgd 0.1 0.0005 128 1 ms1m-retinaface-t1 20 0 2000 V -
    ms1mv3_r50_onegpu r50 A 1.0 0 sgd 0.02 0.0005 128 1 ms1m-retinaface-t1 20 0 2000 V -
    wf12m_conflict_r50 r50 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace12M_Conflict 20 2 2000 - -
    wf12m_conflict_r50_pfc03_filter04 r50 C 0.3 0.4 sgd 0.1 0.0005 128 1 WebFace12M_Conflict 20 2 2000 - -
    wf12m_flip_pfc01_filter04_r50 r50 C 0.1 0.4 sgd 0.1 0.0005 128 1 WebFace12M_FLIP40 20 2 2000 - -
    wf12m_flip_r50 r50 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace12M_FLIP40 20 2 2000 - -
    wf12m_mbf mbf C 1.0 0 sgd 0.1 0.0001 128 1 WebFace12M 20 0 2000 - -
    wf12m_pfc02_r100 r100 C 0.2 0 sgd 0.1 0.0005 128 1 WebFace12M 20 0 2000 - -
    wf12m_r100 r100 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace12M 20 0 2000 - -
    wf12m_r50 r50 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace12M 20 0 2000 - -
    wf42m_pfc0008_32gpu_r100 r100 C 0 0 sgd 0.4 0.0005 512 1 WebFace42M 20 2 2000 V -
    wf42m_pfc02_16gpus_mbf_bs8k mbf C 0.2 0 sgd 0.4 0.0001 512 1 WebFace42M 20 2 10000 - -
    wf42m_pfc02_16gpus_r100 r100 C 0.2 0 sgd 0.3 0.0005 256 1 WebFace42M 20 1 2000 V -
    wf42m_pfc02_16gpus_r50_bs8k r50 C 0.2 0 sgd 0.6 0.0005 512 1 WebFace42M 20 4 10000 V -
    wf42m_pfc02_32gpus_r50_bs4k r50 C 0.2 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 10000 V -
    wf42m_pfc02_8gpus_r50_bs4k r50 C 0.2 0 sgd 0.4 0.0005 512 1 WebFace42M 20 2 10000 V -
    wf42m_pfc02_r100 r100 C 0.2 0 sgd 0.1 0.0005 128 1 WebFace42M 20 0 10000 V -
    wf42m_pfc02_r100_16gpus r100 C 0.2 0 sgd 0.2 0.0005 128 1 WebFace42M 20 2 10000 V -
    wf42m_pfc02_r100_32gpus r100 C 0.2 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 10000 V -
    wf42m_pfc02_vit_h vit_h C 0.5 0 adamw 0.001 0.1 768 1 WebFace42M 16 2 2000 - dali, aug
    wf42m_pfc03_32gpu_r100 r100 C 0.3 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 2000 V -
    wf42m_pfc03_32gpu_r18 r18 C 0.3 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 2000 V -
    wf42m_pfc03_32gpu_r200 r200 C 0.3 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 2000 V -
    wf42m_pfc03_32gpu_r50 r50 C 0.3 0 sgd 0.4 0.0005 128 1 WebFace42M 20 2 2000 V -
    wf42m_pfc03_40epoch_64gpu_vit_b vit_b_dp005_mask_005 C 0.3 0 adamw 0.001 0.1 384 1 WebFace42M 40 4 2000 - -
    wf42m_pfc03_40epoch_64gpu_vit_l vit_l_dp005_mask_005 C 0.3 0 adamw 0.001 0.1 384 1 WebFace42M 40 4 2000 - -
    wf42m_pfc03_40epoch_64gpu_vit_s vit_s_dp005_mask_0 C 0.3 0 adamw 0.001 0.1 384 1 WebFace42M 40 4 2000 - -
    wf42m_pfc03_40epoch_64gpu_vit_t vit_t_dp005_mask0 C 0.3 0 adamw 0.001 0.1 384 1 WebFace42M 40 4 2000 - -
    wf42m_pfc03_40epoch_8gpu_vit_b vit_b_dp005_mask_005 C 0.3 0 adamw 0.001 0.1 256 12 WebFace42M 40 4 2000 - -
    wf42m_pfc03_40epoch_8gpu_vit_t vit_t_dp005_mask0 C 0.3 0 adamw 0.001 0.1 512 1 WebFace42M 40 4 2000 - -
    wf4m_mbf mbf C 1.0 0 sgd 0.1 0.0001 128 1 WebFace4M 20 0 2000 V -
    wf4m_r100 r100 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace4M 20 0 2000 V -
    wf4m_r50 r50 C 1.0 0 sgd 0.1 0.0005 128 1 WebFace4M 20 0 2000 V -
"""
ROWS = [line.split() for line in PUBLISHED.strip().splitlines()]
MARGINS = {"A": (1.0, 0.5, 0.0), "C": (1.0, 0.0, 0.4)}


def test_the_presets_are_the_published_configurations() -> None:
    assert [row[0] for row in ROWS] == list(RECOGNITION_PRESETS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_preset_asks_for_what_was_published(row: list[str]) -> None:
    name, network, margin, rate, threshold, optimizer, learning_rate, decay, batch, accumulation, _, *rest = row
    epochs, warm_up, every, targets, *loader = rest
    preset = recognition_preset(name)
    options = read_options(RecognitionOptions, None, preset.overrides()).options
    check_together(options)
    assert options.model.backbone == network
    assert (options.model.embedding_size, options.model.mixed_precision) == (512, "fp16")
    assert (options.head.m1, options.head.m2, options.head.m3) == MARGINS[margin]
    assert (options.head.scale, options.head.sampling_rate) == (64, float(rate))
    assert options.head.interclass_threshold == float(threshold)
    assert (options.optimizer.optimizer, options.optimizer.learning_rate) == (optimizer, float(learning_rate))
    assert (options.optimizer.weight_decay, options.optimizer.momentum) == (float(decay), 0.9)
    assert options.batch_size == int(batch) * preset.ranks
    assert options.optimizer.accumulation == int(accumulation)
    assert options.epochs == float(epochs)
    assert options.optimizer.warmup_epochs == max(0, int(warm_up))  # a negative one acts like none
    assert options.verification.every == int(every)
    assert options.verification.targets == (["lfw", "cfp_fp", "agedb_30"] if targets == "V" else [])
    assert options.data.augmentation == ("dali_aug" if loader != ["-"] else "none")
    assert options.optimizer.linear_scaling
    assert options.optimizer.linear_scaling_batch == int(batch) * preset.ranks * int(accumulation)
    assert preset.data in PUBLISHED_SETS


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("ms1mv3_r50_onegpu", 128),
        ("ms1mv3_r50", 1024),
        ("wf42m_pfc02_16gpus_r100", 4096),
        ("wf42m_pfc0008_32gpu_r100", 16384),
        ("wf42m_pfc03_40epoch_64gpu_vit_b", 24576),
        ("wf42m_pfc03_40epoch_8gpu_vit_b", 24576),
    ],
)
def test_a_preset_knows_the_batch_that_its_rate_is_meant_for(name: str, total: int) -> None:
    assert RECOGNITION_PRESETS[name].total_batch == total


def test_what_the_command_line_says_wins_over_a_preset() -> None:
    preset = recognition_preset("MS1MV3-R50")
    options = read_options(RecognitionOptions, None, (*preset.overrides(), "batch_size=64")).options
    assert options.batch_size == 64


def test_an_unknown_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean ms1mv3_r50"):
        recognition_preset("ms1mv3_r50s")
