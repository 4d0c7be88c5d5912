from __future__ import annotations

from ostinato.swap.folder_sketch import SKETCH_SIZE, exchanged_sides, folder_sketch, similarity


def fill(folder, names):
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode())
    return sorted(folder.iterdir())


def test_a_folder_is_the_same_after_it_moved(tmp_path):
    files = fill(tmp_path / "here", [f"{i}.png" for i in range(200)])
    before = folder_sketch(files)
    (tmp_path / "here").rename(tmp_path / "there")
    assert folder_sketch(sorted((tmp_path / "there").iterdir())) == before
    assert len(before) == SKETCH_SIZE


def test_similarity_estimates_the_shared_part(tmp_path):
    one = folder_sketch(fill(tmp_path / "one", [f"{i}.png" for i in range(300)]))
    half = folder_sketch(fill(tmp_path / "half", [f"{i}.png" for i in range(100, 400)]))
    assert similarity(one, one) == 1.0
    assert 0.3 < similarity(one, half) < 0.7
    assert similarity([], []) == 1.0
    assert similarity(one, []) == 0.0


def test_exchanged_folders_are_noticed_and_grown_ones_are_not(tmp_path):
    a = folder_sketch(fill(tmp_path / "a", [f"a{i}.png" for i in range(40)]))
    b = folder_sketch(fill(tmp_path / "b", [f"b{i}.png" for i in range(40)]))
    grown = folder_sketch(fill(tmp_path / "grown", [f"a{i}.png" for i in range(60)]))
    assert exchanged_sides({"a": a, "b": b}, {"a": b, "b": a}) == ("a", "b")
    assert exchanged_sides({"a": a, "b": b}, {"a": grown, "b": b}) is None
    assert exchanged_sides({"a": a}, {"a": a, "b": b}) is None
