"""Journals: torn lines, locks, foreign studies, merging."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from celosia.explore.journal import Journal, JournalLockedError, Record, merge, read_journal, write_merged
from celosia.intrinsics import CelosiaError, FormatError, HashMismatchError


def record(number: int, *, error: bool = False, operator: str = "") -> Record:
    failure = {"stage": "model", "class": "ValueError", "message": "no"} if error else None
    return Record(
        hash=f"h{number}",
        fidelity="model",
        operator=operator,
        candidate={"n": number, "word": "größe"},
        measurements=None if error else {"cycles": number},
        error=failure,
        ask=number,
    )


def filled(path: Path, numbers: range, study: str = "s1") -> Path:
    with Journal(path, study) as journal:
        for number in numbers:
            journal.append(record(number))
    return path


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", range(5))
    study, records = read_journal(path)
    assert study == "s1"
    assert records == [record(number) for number in range(5)]


def test_a_known_key_is_not_written_again(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", "s1") as journal:
        assert journal.append(record(1))
        assert not journal.append(record(1))
        assert journal.append(record(1, operator="gemm"))
    assert len((tmp_path / "j").read_bytes().splitlines()) == 3


def test_replace_lets_the_last_one_count(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", "s1") as journal:
        journal.append(record(1, error=True))
        journal.replace(record(1))
    assert read_journal(tmp_path / "j")[1] == [record(1)]


def test_a_full_disk_leaves_no_half_line_that_others_append_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(file: int, line: bytes) -> int:
        if len(line) < 60:
            raise OSError(28, "No space left on device")
        return write(file, line[:-50])

    with Journal(tmp_path / "j", "s1") as journal:
        journal.append(record(1))
        with monkeypatch.context() as patch:
            patch.setattr("celosia.explore.journal.os.write", half)
            with pytest.raises(CelosiaError, match="cannot be written: No space left on device"):
                journal.append(record(2))
        journal.append(record(3))
    assert read_journal(tmp_path / "j")[1] == [record(1), record(3)]


def test_a_torn_last_line_is_cut_off_at_every_length(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole", range(3)).read_bytes()
    third = len(b"".join(whole.splitlines(keepends=True)[:3]))
    for length in range(third, len(whole), 7):
        path = tmp_path / "torn"
        path.write_bytes(whole[:length])
        assert [entry.hash for entry in read_journal(path)[1]] == ["h0", "h1"]
        with Journal(path, "s1") as journal:
            assert set(journal.records) == {("h0", "model", ""), ("h1", "model", "")}
            journal.append(record(7))
        assert [entry.hash for entry in read_journal(path)[1]] == ["h0", "h1", "h7"]


def test_a_torn_header_is_an_empty_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"kind": "head')
    with Journal(path, "s2") as journal:
        assert journal.records == {}
    assert read_journal(path) == ("s2", [])


@pytest.mark.parametrize("content", [b"user data", b"garbage\n", b"\0", b'{"kind": "headline"', b'{"some": "json"}\n', b"a\nb\n"])
def test_what_is_no_journal_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(content)
    with pytest.raises(
        FormatError, match=r"^(journal )?'.*j'[^\n]* (is no journal of a study and stays as it is|is not a record); [^\n]*$"
    ):
        Journal(path, "s1")
    assert path.read_bytes() == content


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", range(3))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\x00\x00\n" + lines[2])
    with pytest.raises(FormatError, match=r"^journal '.*j', line 2 is not a record; only the last line may be torn$"):
        Journal(path, "s1")


def test_another_study_is_refused_with_both_hashes(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", range(1))
    before = path.read_bytes()
    with pytest.raises(
        HashMismatchError, match=r"^'.*' holds results of another study \(hash s1\), not of this one \(hash s2\); choose another folder$"
    ):
        Journal(path, "s2")
    assert path.read_bytes() == before
    with Journal(path, "s1") as journal:  # the lock was given back
        assert len(journal.records) == 1


def test_two_processes_cannot_append(tmp_path: Path) -> None:
    path = tmp_path / "ein Ordner ü" / "j"
    path.parent.mkdir()
    code = (
        "import sys; from pathlib import Path; from celosia.explore.journal import *\n"
        "try: Journal(Path(sys.argv[1]), 's1')\nexcept JournalLockedError as error: print(error); sys.exit(7)"
    )
    with Journal(path, "s1"):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 7, done.stderr
        assert re.fullmatch(r"another run is writing to '.*ein Ordner ü'; wait for it, or choose another output folder\n", done.stdout)
        with pytest.raises(JournalLockedError):
            Journal(path, "s1")


def test_merging(tmp_path: Path) -> None:
    with Journal(tmp_path / "a", "s1") as journal:
        journal.append(record(1))
        journal.append(record(2, error=True))
    with Journal(tmp_path / "b", "s1") as journal:
        journal.append(record(2))
        journal.append(record(3))
    study, records = merge([tmp_path / "a", tmp_path / "b"])
    assert (study, records) == ("s1", [record(1), record(2), record(3)])
    write_merged([tmp_path / "b", tmp_path / "a"], tmp_path / "c")
    assert {entry.hash: entry for entry in read_journal(tmp_path / "c")[1]} == {entry.hash: entry for entry in records}
    filled(tmp_path / "d", range(1), study="s9")
    with pytest.raises(HashMismatchError, match=r"^journal '.*d' belongs to study s9, but the ones before it to study s1$"):
        merge([tmp_path / "a", tmp_path / "d"])


def test_lines_are_plain_json(tmp_path: Path) -> None:
    path = filled(tmp_path / "j", range(1))
    header, line = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert header == {"kind": "header", "format": 1, "study_hash": "s1"}
    assert line["kind"] == "evaluation"
    assert {"hash", "candidate", "fidelity", "measurements", "error", "versions", "seed", "ask", "started"} <= set(line)
