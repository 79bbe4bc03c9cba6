"""Pickled arrays: what NumPy writes is read, and nothing that a pickle says reaches NumPy unchecked."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pflbench.data.unpickle import _Dtype, _Named
from pflbench.data.unpickle import unpickled as loaded

# ---- a pickle, opcode by opcode


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def number(n: int) -> bytes:
    return b"\x8a\x05" + n.to_bytes(5, "little", signed=True)


def raw(s: str) -> bytes:
    return b"c_codecs\nencode\n" + text(s) + text("latin1") + b"\x86R"


def dtype(code: str) -> bytes:
    return b"cnumpy\ndtype\n" + text(code) + b"\x89\x88\x87Rq\x01"  # and into the memo


def dtype_state(size: int, order: bytes = b"", fields: bytes = b"NNN", flags: int = 0) -> bytes:
    return b"(" + number(3) + (order or text("|")) + fields + number(size) + number(-1) + number(flags) + b"tb"


def array(dtype: bytes, values: bytes, shape: bytes) -> bytes:
    made = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + raw("b") + b"\x87R"
    return made + b"(" + number(1) + shape + dtype + b"\x89" + values + b"tb"


def batch(labels: bytes, then: bytes = b"") -> bytes:
    data = array(dtype("u1") + dtype_state(-1), raw("1234"), number(4) + b"\x85")
    return b"\x80\x02}(" + text("data") + data + text("labels") + labels + then + b"u."


# A dtype that is small while its array is made, and large when the array is read.
WILD = batch(
    array(dtype("S1") + dtype_state(1), raw("1234"), number(4) + b"\x85"),
    text("then") + b"h\x01" + dtype_state(1 << 24),
)


def test_a_crafted_dtype_reads_no_wild_memory(tmp_path: Path) -> None:
    """In a process of its own, which NumPy's unpickling ends with a segmentation fault (exit status 139)."""
    path = tmp_path / "data_batch_1"
    path.write_bytes(WILD)
    program = (
        "import sys; from pathlib import Path; from pflbench.data.unpickle import unpickled\n"
        "try: unpickled(Path(sys.argv[1]).read_bytes())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert done.stdout.startswith("UnpicklingError ")


ATTACKS = {
    "a type that changes": WILD,
    "fields": batch(array(dtype("V8") + dtype_state(8, fields=b"N" + text("a") + b"\x85}"), raw("1" * 8), b")")),
    "a subarray": batch(array(dtype("u1") + dtype_state(-1, fields=dtype("u1") + b"NN"), raw("1"), b")")),
    "flags": batch(array(dtype("u1") + dtype_state(-1, flags=63), raw("1"), b")")),
    "addresses": batch(array(dtype("O8") + dtype_state(-1, flags=63), raw("1" * 8), b")")),
    "a size": batch(array(dtype("u1") + dtype_state(1 << 24), raw("1"), b")")),
    "an order": batch(array(dtype("u1") + dtype_state(-1, order=text("?")), raw("1"), b")")),
    "a state of another length": batch(array(dtype("u1") + b"(" + number(3) + b"tb", raw("1"), b")")),
    "texts": batch(array(dtype("U1") + dtype_state(4), raw("1234"), b")")),
    "dates": batch(array(dtype("M8") + dtype_state(-1), raw("1" * 8), b")")),
    "a code with a comma": batch(array(dtype("u1,O") + dtype_state(-1), raw("1" * 9), b")")),
    "too few bytes": batch(array(dtype("u1") + dtype_state(-1), raw("123"), number(4) + b"\x85")),
    "too many bytes": batch(array(dtype("u1") + dtype_state(-1), raw("12345"), number(4) + b"\x85")),
    "a negative length": batch(array(dtype("u1") + dtype_state(-1), raw("1"), number(-1) + number(-1) + b"\x86")),
    "a huge shape": batch(array(dtype("u1") + dtype_state(-1), raw("1"), number(1 << 33) + b"\x85")),
    "no values": batch(array(dtype("u1") + dtype_state(-1), b"N", b")")),
    "no type": batch(array(b"N", raw("1"), b")")),
    "a function's state": batch(b"c_codecs\nencode\n}" + text("__doc__") + text("x") + b"sb"),
    "another codec": batch(b"c_codecs\nencode\n" + text("x") + text("rot13") + b"\x86R"),
    "an array as a key": batch(b"}" + array(dtype("u1"), raw("1"), b")") + b"Ns"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_array_that_numpy_does_not_write_is_refused(attack: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 (any: what reads a file names it)
        loaded(ATTACKS[attack])


def test_other_functions_are_refused() -> None:
    for name in (b"os\nsystem", b"numpy\nload", b"builtins\neval", b"numpy.core.multiarray\nfrombuffer"):
        with pytest.raises(pickle.UnpicklingError, match="it asks for " + name.replace(b"\n", rb"\.").decode()):
            loaded(b"c" + name + b"\n(S'true'\ntR.")


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a place of the memo
        b"Np999999999\n.",
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.",  # the length of a bytearray
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.",
    ],
)
def test_a_number_makes_no_room_for_what_is_not_there(bomb: bytes) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        loaded(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


# ---- what NumPy writes


TYPES = [f"{order}{code}" for code in ("i2", "i4", "i8", "u2", "u8", "f2", "f4", "f8") for order in "<>"]


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("code", ["b1", "i1", "u1", *TYPES])
def test_arrays_of_numbers_are_those_that_numpy_unpickles(code: str, protocol: int) -> None:
    plain = np.random.default_rng(0).integers(0, 2 if code == "b1" else 100, (3, 4, 2)).astype(code)
    for array in (plain, np.asfortranarray(plain), plain[::2, 1:], plain[0, 0, 0, None].reshape(()), plain[:0]):
        if protocol < 3 and not array.size:
            continue  # NumPy names `bytes` there, which no file that is read here needs
        whole = pickle.dumps({"a": [array, array]}, protocol=protocol)
        first, second = loaded(whole)["a"]
        expected = pickle.loads(whole)["a"][0]
        assert first is second and first.dtype == expected.dtype.newbyteorder("=") and first.shape == expected.shape
        assert np.array_equal(first, expected)


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_of_objects_and_numbers_of_numpy(protocol: int) -> None:
    several = np.empty(3, dtype=object)
    several[:] = [[1, 2], np.arange(3), np.float32(0.5)]
    first, second, third = loaded(pickle.dumps(several, protocol=protocol)).tolist()
    assert first == [1, 2] and second.tolist() == [0, 1, 2] and third == 0.5
    alone = np.array({"x": np.arange(2), "y": (1.5, "a", None)}, dtype=object)
    found = loaded(pickle.dumps(alone, protocol=protocol)).tolist()
    assert found.keys() == {"x", "y"} and found["x"].tolist() == [0, 1] and found["y"] == (1.5, "a", None)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_pickle_with_other_bytes_gives_plain_things_or_is_refused(data: st.DataObject) -> None:
    held = {"a": np.arange(6, dtype=">i4").reshape(2, 3), "b": [1, "x", 2.5]}
    whole = pickle.dumps(held, protocol=data.draw(st.sampled_from([0, 2, 4, 5])))
    start = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(max_size=6))
    try:
        found = loaded(whole[:start] + damage + whole[start + data.draw(st.integers(0, 6)) :])
    except Exception:
        return
    _check(found)


def _check(held: Any) -> None:
    if isinstance(held, list | tuple | dict):
        for one in held.values() if isinstance(held, dict) else held:
            _check(one)
    elif isinstance(held, np.ndarray):
        assert held.dtype.kind in "biufO"
        held.tolist()
    else:
        assert isinstance(held, int | float | str | bytes | None | _Named | _Dtype)
