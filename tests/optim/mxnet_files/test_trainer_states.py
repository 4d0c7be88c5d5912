"""Trainer states: read as data whatever they say, written so that Python and MXNet read them."""

from __future__ import annotations

import collections
import io
import pickle
import pickletools
import struct
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ostinato.errors import BadInputError
from ostinato.optim.mxnet_files import (
    ClassName,
    PlainObject,
    TrainerStates,
    read_trainer_states,
    write_trainer_states,
)
from ostinato.optim.mxnet_files.array_record import array_bytes
from ostinato.optim.mxnet_files.trainer_states import trainer_states_from_bytes
from ostinato.optim.row_sparse_gradient import RowSparse


class Stand:
    """Stands in for a class of MXNet, pickled as MXNet pickles it."""

    def __init__(self, state: Any = None) -> None:
        self.__dict__.update(state or {})


class NDArray:
    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def __reduce__(self) -> Any:
        return NDArray, (None,), {"handle": self.handle}

    def __setstate__(self, state: Any) -> None:
        assert isinstance(state["handle"], bytearray)
        self.handle = state["handle"]


@pytest.fixture
def mxnet(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Modules with the names of MXNet's, so that Python itself can pickle and unpickle."""
    made = {}
    for path, base in (
        ("mxnet.ndarray.ndarray.NDArray", NDArray),
        ("mxnet.optimizer.optimizer.SGD", Stand),
        ("mxnet.lr_scheduler.FactorScheduler", Stand),
    ):
        module_name, name = path.rsplit(".", 1)
        cls = base if base is NDArray else type(name, (base,), {})
        monkeypatch.setattr(cls, "__module__", module_name)
        module = types.ModuleType(module_name)
        setattr(module, name, cls)
        monkeypatch.setitem(sys.modules, module_name, module)
        made[name] = cls
    for parent in ("mxnet", "mxnet.ndarray", "mxnet.optimizer"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    return types.SimpleNamespace(**made)


def array(values: list[float]) -> Any:
    return NDArray(bytearray(array_bytes(torch.tensor(values))))


def attributes(mxnet: types.SimpleNamespace) -> dict[str, Any]:
    counts = {0: 3, 1: 2**40}
    return {
        "lr": 0.05,
        "wd": np.float32(0.5),
        "rescale_grad": np.float64(0.25),
        "count": np.int64(-7),
        "sym_info": (),
        "idx2name": {},
        "_index_update_count": counts,
        "_all_index_update_counts": {0: counts},
        "lr_scheduler": mxnet.FactorScheduler({"base_lr": 0.025, "step": 2}),
        "ordered": collections.OrderedDict(a=1),
        "big": -(2**70),
        "text": "ä" * 300,
        "flags": [True, False, None],
        "scale": array([2.0]),
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(protocol: int, mxnet: types.SimpleNamespace) -> None:
    states = {0: array([1.0, 2.0]), 1: (array([3.0]), (array([4.0]), None)), 2: None, "named": [array([5.0])]}
    data = pickle.dumps((states, mxnet.SGD(attributes(mxnet))), protocol=protocol)
    found = trainer_states_from_bytes(data, "here")
    assert found.states[0].tolist() == [1.0, 2.0]
    assert [part if part is None else part.tolist() for part in found.states[1][1]] == [[4.0], None]
    assert found.states[2] is None
    assert found.states["named"][0].tolist() == [5.0]
    assert found.optimizer is not None
    assert found.optimizer.class_name == ClassName("mxnet.optimizer.optimizer", "SGD")
    read = dict(found.optimizer.attributes)
    schedule = read.pop("lr_scheduler")
    assert (schedule.class_name.path, schedule.attributes) == (
        "mxnet.lr_scheduler.FactorScheduler",
        {"base_lr": 0.025, "step": 2},
    )
    assert read.pop("scale").tolist() == [2.0]
    expected = attributes(mxnet)
    for name in ("lr_scheduler", "scale"):
        del expected[name]
    assert read == expected
    assert type(read["wd"]) is float


def test_states_without_their_optimizer_are_read() -> None:
    assert trainer_states_from_bytes(pickle.dumps({0: None, 1: 2.5}), "here") == TrainerStates({0: None, 1: 2.5}, None)


def test_what_is_written_python_reads_and_we_read(mxnet: types.SimpleNamespace, tmp_path: Path) -> None:
    half = torch.ones(2, 3).half()
    rows = RowSparse(torch.tensor([1]), torch.ones(1, 2), (3, 2))
    states = {0: None, 1: torch.arange(3.0), 2: (torch.zeros(2), (half, rows)), -5: 0.5, 2**40: None}
    settings_ = {
        "lr": 0.1,
        "idx2name": {0: "weight"},
        "clip": None,
        "on": True,
        "list": [1, (2,)],
        "name": "ü",
        "b": b"x",
    }
    schedule = PlainObject(ClassName("mxnet.lr_scheduler", "FactorScheduler"), (), {"step": 2})
    optimizer = PlainObject(ClassName("mxnet.optimizer.optimizer", "SGD"), (), {**settings_, "lr_scheduler": schedule})
    file = io.BytesIO()
    write_trainer_states(file, TrainerStates(states, optimizer))
    pickletools.dis(file.getvalue(), out=io.StringIO())  # complains of what is malformed

    path = tmp_path / "here.states"
    path.write_bytes(file.getvalue())
    again = read_trainer_states(path)
    assert again.states.keys() == states.keys()
    assert torch.equal(again.states[1], torch.arange(3.0))
    assert torch.equal(again.states[2][1][0], half)
    assert torch.equal(again.states[2][1][1].to_dense(), rows.to_dense())
    assert again.states[-5] == 0.5
    assert again.optimizer is not None
    assert again.optimizer.attributes["lr_scheduler"] == schedule
    assert {name: again.optimizer.attributes[name] for name in settings_} == settings_

    plain = io.BytesIO()
    write_trainer_states(plain, TrainerStates({1: torch.arange(3.0)}, optimizer))
    by_python = pickle.loads(plain.getvalue())  # our own bytes
    assert isinstance(by_python[0][1], NDArray)
    assert bytes(by_python[0][1].handle) == array_bytes(torch.arange(3.0))
    assert by_python[1].idx2name == {0: "weight"}
    assert by_python[1].lr_scheduler.step == 2


# --- hostile files ---------------------------------------------------------------------------------------------------

CALLED: list[str] = []


def note(text: str) -> dict[int, None]:
    CALLED.append(text)
    return {}


class Calls:
    def __reduce__(self) -> Any:
        return note, ("called",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_in_a_file_is_called(protocol: int) -> None:
    for value in (Calls(), {0: Calls()}, ({}, Calls()), {0: (None, [Calls()])}):
        with pytest.raises(BadInputError, match=r"wants .*note, which no trainer state needs"):
            trainer_states_from_bytes(pickle.dumps(value, protocol=protocol), "here")
    assert CALLED == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("mxnet", "nd"),
        ("mxnet.gluon.block", "Block"),
    ],
)
def test_classes_that_states_do_not_need_are_refused_by_name(module: str, name: str) -> None:
    data = b"\x80\x02}c" + f"{module}\n{name}\n".encode() + b"(X\x01\x00\x00\x00xtR."
    with pytest.raises(BadInputError, match=f"wants {module}.{name}") as caught:
        trainer_states_from_bytes(data, "here.states")
    assert caught.value.fields == {"path": "here.states", "offset": len(data) - 2}


def laughs() -> bytes:
    """A tuple of ten times a tuple of ten times …"""
    out = b"\x80\x04}K\x00)q\x00"
    for level in range(30):
        out += b"0(" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"tq" + bytes([level + 1])
    return out + b"s."


NAN = struct.pack(">d", float("nan"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the start of a pickle should take 1 bytes"),
        (b"(dp0\n.", "Python 2 wrote older ones"),
        (b"\x80\x06N.", "no pickle protocol 6"),
        (b"\x80\x04", "an instruction should take 1 bytes"),
        (b"\x80\x04.", "ends in the middle of a value"),
        (b"\x80\x04(.", "ends in the middle of a value"),
        (b"\x80\x04NN.", "ends in the middle of a value"),
        (b"\x80\x04P0\n.", "instruction 0x50, which no trainer state needs"),
        (b"\x80\x04\x82\x01.", "instruction 0x82"),
        (b"\x80\x04a.", "takes a value that is not there"),
        (b"\x80\x04Na.", "changes a value that is not there"),
        (b"\x80\x04NNa.", "appends to what is no list"),
        (b"\x80\x04NNNs.", "sets an item of what is no dict"),
        (b"\x80\x04}(Nu.", "sets an item of what is no dict"),
        (b"\x80\x04}]Ns.", "a dict has a key of type list"),
        (b"\x80\x04\x8f.", "instruction 0x8F"),
        (b"\x80\x04t.", "closes a list that was not opened"),
        (b"\x80\x04h\x07.", "refers to value 7, which it does not have"),
        (b"\x80\x04r\xff\xff\xff\xff.", "changes a value that is not there"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "a NoneType"),
        (b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "bytes should take 9223372036854775807"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "a text should take"),
        (b"\x80\x04\x8c\x01\xff.", "not UTF-8"),
        (b"\x80\x04\x8b\xff\x00\x00\x00" + bytes(255) + b".", "a number has 255 bytes"),
        (b"\x80\x04NN\x93.", "the name of a class is no text"),
        (b"\x80\x04c\xff\nx\n.", "not UTF-8"),
        (b"\x80\x04N)R.", "calls what is no class"),
        (b"\x80\x04}}b.", "gives attributes to what has none"),
        (b"\x80\x04cmxnet.optimizer\nX\n)R}K\x01Nsb.", "a name that is no text"),
        (b"\x80\x04].", "there is a list"),
        (b"\x80\x04}N\x86.", "a pair of states and optimizer"),
        (b"\x80\x04}})NN\x87.", "ends in the middle"),
        (b"\x80\x04}(G" + NAN + b"Nu.", "the index nan of a parameter"),
        (b"\x80\x04}(K\x00C\x01xu.", "the state of a parameter is a PlacedBytes"),
        (b"\x80\x04}(K\x00cmxnet.optimizer\nX\nu.", "the state of a parameter is a ClassName"),
        (b"\x80\x04}(K\x00cmxnet.optimizer\nX\n)Ru.", r"is a mxnet\.optimizer\.X"),
        (b"\x80\x04}cmxnet.optimizer\nX\n)R}(X\x01\x00\x00\x00acmxnet.optimizer\nY\nub\x86.", "is the class"),
        (b"\x80\x04}.N", "1 bytes follow the end"),
        (
            b"\x80\x04}(K\x00cmxnet.ndarray.ndarray\nNDArray\n)R}(X\x06\x00\x00\x00handleK\x01ubu.",
            "an array has no bytes",
        ),
        (b"\x80\x04}(K\x00]q\x00h\x00au.", "nested in themselves"),
        (laughs(), "nested in themselves"),
        (b"\x80\x04cbuiltins\nbytearray\nK\x05\x85R.", "bytes are made of what are no bytes"),
        (b"\x80\x04cnumpy.core.multiarray\nscalar\nNC\x01x\x86R.", "a number of numpy is of an unknown kind"),
    ],
)
def test_malformed_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        trainer_states_from_bytes(data, "here")
    assert 0 <= caught.value.fields["offset"] <= len(data)


def test_damage_inside_an_array_is_placed_in_the_file() -> None:
    record = array_bytes(torch.ones(3))
    data = b"\x80\x04}K\x00cmxnet.ndarray.ndarray\nNDArray\nN\x85R}X\x06\x00\x00\x00handleC" + bytes([len(record)])
    place = len(data)
    data += record[:-1] + b"\x00" + b"sbs."
    assert trainer_states_from_bytes(data, "here").states[0].shape == (3,)
    damaged = bytearray(data)
    damaged[place + 4] = 7  # storage
    with pytest.raises(BadInputError, match="no kind of storage 7") as caught:
        trainer_states_from_bytes(bytes(damaged), "here")
    assert caught.value.fields["offset"] == place + 4


def valid() -> bytes:
    file = io.BytesIO()
    optimizer = PlainObject(
        ClassName("mxnet.optimizer.optimizer", "SGD"), (), {"lr": 0.1, "idx2name": {0: "a"}, "n": [1]}
    )
    write_trainer_states(file, TrainerStates({0: torch.ones(3), 1: (torch.ones(1), None)}, optimizer))
    return file.getvalue()


VALID = valid()
OPCODES = b".(01NJKMGXCB)tl]aes}uhjqrcRb" + bytes([0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8B, 0x8C, 0x8D,
                                                           0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96])  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=60).map(lambda rest: b"\x80\x04" + rest),
        st.lists(st.sampled_from([*OPCODES, 0, 1, 2]), max_size=60).map(lambda rest: b"\x80\x04" + bytes(rest)),
        st.tuples(st.integers(0, len(VALID) - 1), st.binary(max_size=4), st.integers(0, 6)).map(
            lambda edit: VALID[: edit[0]] + edit[1] + VALID[edit[0] + edit[2] :]
        ),
    )
)
def test_no_file_leads_to_anything_but_states_or_an_error_of_ours(data: bytes) -> None:
    try:
        found = trainer_states_from_bytes(data, "fuzzed")
    except BadInputError as error:
        assert_placed(error, data)
    else:
        assert all(isinstance(index, (int, str)) for index in found.states)


def assert_placed(error: BadInputError, data: bytes) -> None:
    assert 0 <= error.fields["offset"] <= len(data)


def test_arrays_of_states_are_tensors() -> None:
    assert all(isinstance(part, Tensor) for part in trainer_states_from_bytes(VALID, "here").states[1][:1])
