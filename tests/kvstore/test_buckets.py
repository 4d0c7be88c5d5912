from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ostinato.kvstore.buckets import give_owners, plan_buckets

CPU = torch.device("cpu")
KEYS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from([torch.float32, torch.float16, torch.float64])), max_size=12
)


@given(KEYS, st.integers(1, 5), st.integers(1, 2000), st.booleans())
def test_every_key_has_one_place_and_buckets_can_be_cut_into_equal_slices(
    keys: list[tuple[int, torch.dtype]], slices: int, limit: int, widened: bool
) -> None:
    homes = [(number, torch.Size([size]), dtype, CPU) for number, (size, dtype) in enumerate(keys)]
    buckets = plan_buckets(homes, slices=slices, bucket_bytes=limit, widened=widened)
    assert sorted(slot.key for bucket in buckets for slot in bucket.slots) == list(range(len(keys)))
    assert [bucket.number for bucket in buckets] == list(range(len(buckets)))
    for bucket in buckets:
        end = 0
        for slot in bucket.slots:
            assert slot.start == end
            assert keys[slot.key][1] == bucket.dtype
            end += slot.size
        assert bucket.size == end <= bucket.whole
        assert bucket.whole % slices == 0
        assert bucket.whole - bucket.size <= slices
        wide = widened and bucket.dtype == torch.float16
        assert bucket.exchanged_as == (torch.float32 if wide else bucket.dtype)
        # All but the last key of a bucket together were below the limit.
        assert bucket.slots[-1].start * bucket.dtype.itemsize < limit or bucket.slots[-1].start == 0
    order = [slot.key for bucket in buckets for slot in bucket.slots if bucket.dtype == torch.float32]
    assert order == sorted(order, reverse=True)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(1, 4))
def test_owners_have_nearly_equal_loads(sizes: list[int], ranks: int) -> None:
    homes = [(number, torch.Size([size]), torch.float32, CPU) for number, size in enumerate(sizes)]
    buckets = plan_buckets(homes, bucket_bytes=1)
    give_owners(buckets, ranks)
    loads = [sum(bucket.size for bucket in buckets if bucket.owner == rank) for rank in range(ranks)]
    assert max(loads) - min(loads) <= max(sizes)


def test_two_buffers_take_turns() -> None:
    (bucket,) = plan_buckets([("w", torch.Size([3]), torch.float32, CPU)])
    first = bucket.free_buffer([])
    second = bucket.free_buffer([first[:2]])
    assert first.data_ptr() != second.data_ptr()
    assert bucket.free_buffer([second]).data_ptr() == first.data_ptr()
    assert bucket.free_buffer([first]).data_ptr() == second.data_ptr()
