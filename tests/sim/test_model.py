"""Models: records, streams, binding, threads, interrupts, and PyVerilator on the same block."""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from celosia.intrinsics import CelosiaError, DType, ParameterError, SimulationError
from celosia.intrinsics.numerics import random_operand
from celosia.intrinsics.reference import gemm_reference
from celosia.sim import Model, build, interactive
from celosia.sim.lanes import pack_lanes, unpack_lanes

from .blocks import toy

INT8 = DType(8)


def operands(seed: int, m: int = 6, n: int = 4, k: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return random_operand(rng, (m, k), INT8), random_operand(rng, (k, n), INT8)


def test_records_step_every_cycle() -> None:
    library = build(toy())
    rng = np.random.default_rng(0)
    a, b = random_operand(rng, (9, 2), INT8), random_operand(rng, (9, 4), INT8)
    records = np.zeros(10, library.input_dtype)
    records["i_a_valid"][:9] = records["i_b_valid"][:9] = records["o_c_ready"] = 1
    records["i_a_data"][:9], records["i_b_data"][:9] = a.view("<u2")[:, 0], b.view("<u4")[:, 0]
    with Model(library) as model:
        out = model.run_records(records)
        with pytest.raises(ParameterError, match="input_dtype"):
            model.run_records(np.zeros(3, np.uint8))
    assert out["o_c_valid"].tolist() == [0] + [1] * 9
    expected = np.einsum("bk,bnk->bn", a.astype(int), b.reshape(9, 2, 2).astype(int))
    assert np.array_equal(np.ascontiguousarray(out["o_c_data"][1:]).view("<i4").reshape(9, 2), expected)


def test_stream_offers_everything_at_once() -> None:
    rng = np.random.default_rng(0)
    a, b = random_operand(rng, (9, 2), INT8), random_operand(rng, (9, 4), INT8)
    with Model(build(toy()), gaps={"i_b": 0.5}) as model:
        c = model.stream(a, b, last=np.ones(9, bool), results=9)
        assert np.array_equal(c, np.einsum("bk,bnk->bn", a.astype(int), b.reshape(9, 2, 2).astype(int)))
        with pytest.raises(ParameterError, match="one flag per beat"):
            model.stream(a, b, last=np.ones(8, bool), results=9)
        with pytest.raises(ParameterError, match="shape"):
            model.stream(a[:, :1], b, last=np.ones(9, bool), results=9)


@pytest.mark.parametrize("name", ["int1", "uint3", "int8", "int11", "uint16", "int33", "int64", "uint64"])
def test_lanes_round_trip(name: str) -> None:
    dtype = DType.of(name)
    values = np.random.default_rng(0).integers(max(dtype.min, -(2**63)), min(dtype.max, 2**63 - 1), (5, 3), endpoint=True)
    images = pack_lanes(values, dtype, -(-3 * dtype.width // 8) + 2)
    assert np.array_equal(unpack_lanes(images, dtype, 3), values.astype(dtype.numpy))


def test_push_and_flush_by_symbol_drive_the_bound_model() -> None:
    library = build(toy(design_hash="51b01ca11ed0"))  # symbols are global: no other test loads this hash
    push, flush = (getattr(ctypes.CDLL(None), name) for name in (library.push_symbol, library.flush_symbol))
    push.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int32] * 4
    a, b = operands(1, m=1, n=2, k=2)
    c = np.array([[10, -20]], np.int32)
    arguments = (a.ctypes.data, b.ctypes.data, c.ctypes.data, 1, 2, 1, 1)
    assert push(*arguments) != 0, "nothing is bound"
    with Model(library) as model, model.bind():
        assert push(*arguments) == 0
        assert flush() == 0
        assert model.counters.calls == 1
        with pytest.raises(SimulationError, match="already bound"), model.bind():
            pass
    assert np.array_equal(c, a.astype(int) @ b.astype(int) + [[10, -20]])
    assert flush() != 0


def test_rtl_that_shares_its_hash_with_other_rtl_cannot_be_bound() -> None:
    first, second = (build(toy(mutation, design_hash="51b01ca11ed1")) for mutation in (None, "signedness"))
    with Model(first) as model, model.bind():
        assert first.owns_symbols
    with (
        Model(second) as model,
        pytest.raises(SimulationError, match=r"another library of design 51b01ca11ed1 first, .*; give this RTL a hash of its own"),
        model.bind(),
    ):
        pass
    assert second.binding_owner is None


def test_two_models_in_two_threads() -> None:
    library = build(toy())
    a, b = operands(2, 40, 30, 50)
    results: list[bool] = []

    def work(seed: int) -> None:
        with Model(library, gaps=0.5, seed=seed) as model:
            for _ in range(5):
                results.append(np.array_equal(model.gemm(a, b), gemm_reference(library.machine, a, b)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 10


def test_an_interrupt_ends_a_long_run_and_leaves_the_model_usable() -> None:
    a, b = np.ones((2000, 200), np.int8), np.ones((200, 200), np.int8)
    with Model(build(toy()), gaps=0.99) as model:
        timer = threading.Timer(0.4, _thread.interrupt_main)
        timer.start()
        started = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            model.gemm(a, b)
        assert time.perf_counter() - started < 5
        small_a, small_b = operands(3)
        assert np.array_equal(model.gemm(small_a, small_b), gemm_reference(model.machine, small_a, small_b))


def test_another_thread_sees_counters_and_can_stop_the_run() -> None:
    a, b = np.ones((2000, 200), np.int8), np.ones((200, 200), np.int8)
    with Model(build(toy()), gaps=0.99) as model:
        seen: list[int] = []

        def watch() -> None:
            while model.counters.cycles < 1000:
                time.sleep(0.01)
            seen.append(model.counters.cycles)
            model.stop()

        watcher = threading.Thread(target=watch)
        watcher.start()
        with pytest.raises(SimulationError, match="stopped"):
            model.gemm(a, b)
        watcher.join()
        assert seen[0] >= 1000
        with pytest.raises(SimulationError, match="stopped"):
            model.flush()
        model.reset()
        assert model.counters.cycles == 0
        model.flush()


def test_a_progress_callback_that_raises_ends_the_run() -> None:
    a, b = np.ones((2000, 200), np.int8), np.ones((200, 200), np.int8)

    def refuse(cycles: int) -> None:
        raise RuntimeError(f"enough after {cycles}")

    with Model(build(toy()), gaps=0.99) as model, pytest.raises(RuntimeError, match="enough"):
        model.gemm(a, b, progress=refuse)


def test_operands_of_the_wrong_kind_are_refused() -> None:
    a, b = operands(4)
    with Model(build(toy())) as model:
        with pytest.raises(ParameterError, match="dtype int8"):
            model.gemm(a.astype(np.int16), b)
        with pytest.raises(ParameterError, match="shapes"):
            model.gemm(a, b[1:])
        with pytest.raises(ParameterError, match="tile c"):
            model.push(a[0, :2], b[:2, :2], np.zeros(2, np.int64))
    with pytest.raises(SimulationError, match="closed"):
        model.reset()


def test_interactive_batch_and_waves_on_one_block(tmp_path: Path) -> None:
    a, b = operands(5, m=1, n=2, k=2)
    expected = a.astype(int) @ b.astype(int)
    waves = tmp_path / "wäves of one.vcd"
    with interactive(toy(), vcd=waves) as s:
        for _ in range(2):
            s.io.i_a_valid = s.io.i_b_valid = s.io.o_c_ready = 1
            s.io.i_a_data = int(a.view("<u2")[0, 0])
            s.io.i_b_data = pack(b)
            assert int(s.io.i_a_ready) == 1
            s.clock.tick()
            s.io.i_a_valid = s.io.i_b_valid = 0
            assert int(s.io.o_c_valid) == 1
            raw = np.array([int(s.io.o_c_data)], np.uint64).view("<i4")
            assert np.array_equal(raw, expected[0])
            s.clock.tick()
            before, cycles = s.vcd_time, s.model.counters.cycles
            wide_a, wide_b = operands(6)
            assert np.array_equal(s.gemm(wide_a, wide_b), gemm_reference(s.model.machine, wide_a, wide_b))
            assert s.vcd_time - before == 20 * (s.model.counters.cycles - cycles)
        with pytest.raises(SimulationError, match="is running"):
            s.start_vcd(tmp_path / "other.vcd")
    text = waves.read_text()
    assert "o_c_valid" in text
    assert text.count("\n#") > 2 * 24


def pack(b: np.ndarray) -> int:
    return int.from_bytes(np.ascontiguousarray(b.T).tobytes(), "little")


def test_an_unwritable_wave_file_is_one_sentence(tmp_path: Path) -> None:
    with interactive(toy()) as s, pytest.raises(CelosiaError, match="cannot be written"):
        s.start_vcd(tmp_path / "missing" / "x.vcd")


def test_tcl_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tclwrapper", "pyverilator")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tkinter", None)
    with interactive(toy()) as s:
        assert int(s.io.o_c_valid) == 0
