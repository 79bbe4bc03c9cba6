"""Archives are unpacked whole, inside a folder of the cache, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pflbench.data import archive
from pflbench.data.archive import unpacked
from pflbench.errors import DataMissing, PflbenchError

FILES = {"a/one.txt": b"one" * 999, "a/b/two.bin": bytes(1000), "empty": b""}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pflbench" / "unpacked"


def as_zip(path: Path, files: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            made.writestr(info, data)
    return path


def as_tar(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE, how: str = "w:gz") -> Path:
    with tarfile.open(path, how) as made:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            if kind != tarfile.REGTYPE:
                info.linkname = "/etc/passwd"
            made.addfile(info, io.BytesIO(data))
    return path


def held(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


MAKERS = {
    "files.zip": as_zip,
    "files.tar.gz": as_tar,
    "files.tar": lambda path, files: as_tar(path, files, how="w"),
    "files.tar.xz": lambda path, files: as_tar(path, files, how="w:xz"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_it_holds_is_unpacked_once(
    name: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = MAKERS[name](tmp_path / name, FILES)
    folder = unpacked(path)
    assert folder.parent == cache and held(folder) == FILES
    assert [p.name for p in cache.iterdir()] == [folder.name]
    monkeypatch.setattr(archive, "_unpack", None)
    assert unpacked(path) == folder
    monkeypatch.undo()


@pytest.mark.parametrize("spoil", [lambda f: (f / "empty").unlink(), lambda f: (f / "a" / "more.png").touch()])
def test_what_somebody_cleared_up_or_added_in_the_cache_is_unpacked_anew(
    spoil: Callable[[Path], None], tmp_path: Path, cache: Path
) -> None:
    path = as_zip(tmp_path / "files.zip", FILES)
    spoil(unpacked(path))
    assert held(unpacked(path)) == FILES
    assert len(list(cache.iterdir())) == 1


def test_what_a_killed_process_left_goes_after_a_day(tmp_path: Path, cache: Path) -> None:
    for name, age in ((".old-1", 2), (".new-1", 0.5)):
        (cache / name / "a").mkdir(parents=True)
        os.utime(cache / name, (time.time() - age * 86400,) * 2)
    folder = unpacked(as_zip(tmp_path / "files.zip", FILES))
    assert {path.name for path in cache.iterdir()} == {".new-1", folder.name}


def test_another_process_may_be_faster(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = as_zip(tmp_path / "files.zip", FILES)
    rename = Path.rename

    def late(temporary: Path, folder: Path) -> Path:
        shutil.copytree(temporary, folder)
        return rename(temporary, folder)

    monkeypatch.setattr(Path, "rename", late)
    assert held(unpacked(path)) == FILES
    assert len(list(cache.iterdir())) == 1


def test_another_content_is_another_folder(tmp_path: Path) -> None:
    before = unpacked(as_zip(tmp_path / "files.zip", FILES))
    after = unpacked(as_zip(tmp_path / "files.zip", {"other": b"1"}))
    assert held(before) == FILES and held(after) == {"other": b"1"}


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out", "C:\\out", "c:/out", "a\\..\\out", ".."])
@pytest.mark.parametrize("make", [as_zip, as_tar])
def test_no_member_lands_elsewhere(make, name: str, tmp_path: Path, cache: Path) -> None:
    path = make(tmp_path / "files.zip", {"fine": b"1", name: b"2"})
    with pytest.raises(PflbenchError, match="would lie elsewhere") as refused:
        unpacked(path)
    assert str(path) in str(refused.value)
    assert list(cache.iterdir()) == [] and not (tmp_path / "out").exists()


KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]


@pytest.mark.parametrize("kind", KINDS)
def test_no_links_or_devices_of_a_tar(kind: bytes, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PflbenchError, match="a link or a device"):
        unpacked(as_tar(tmp_path / "files.tar.gz", {"a": b""}, kind))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("mode", [0o120777, 0o020600, 0o010600])
def test_no_links_or_devices_of_a_zip(mode: int, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PflbenchError, match="a link or a device"):
        unpacked(as_zip(tmp_path / "files.zip", {"a": b"/etc/passwd"}, mode))
    assert list(cache.iterdir()) == []


def test_no_sparse_members(tmp_path: Path, cache: Path) -> None:
    """A gigabyte said in 2 kB: in the old form of GNU's tar, and in that of pax."""
    old = tarfile.TarInfo("huge.bin").tobuf(tarfile.GNU_FORMAT)
    header = bytearray(old)
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0" % 0 + b"%011o\0" % 0  # one block of no bytes at the beginning
    header[483:495] = b"%011o\0" % 10**9
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]
    (tmp_path / "old.tar").write_bytes(bytes(header) + bytes(2 * tarfile.BLOCKSIZE))
    with tarfile.open(tmp_path / "new.tar", "w", format=tarfile.PAX_FORMAT) as made:
        info = tarfile.TarInfo("huge.bin")
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.size": str(10**9), "GNU.sparse.map": "0,0"}
        made.addfile(info, io.BytesIO())
    for name in ("old.tar", "new.tar"):
        with pytest.raises(PflbenchError, match=r"'huge.bin' with 1,000,000,000 bytes .* \(sparse\)"):
            unpacked(tmp_path / name)
        assert list(cache.iterdir()) == []


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("part", [0.1, 0.4, 0.8])
def test_half_an_archive_is_refused_and_leaves_nothing(name: str, part: float, tmp_path: Path, cache: Path) -> None:
    data = {f"{n}.bin": os.urandom(3000) for n in range(5)}
    path = MAKERS[name](tmp_path / name, data)
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(PflbenchError, match="files") as refused:
        unpacked(path)
    assert str(path) in str(refused.value) and list(cache.iterdir()) == []


def test_a_tar_whose_second_header_is_damaged_is_not_taken_for_a_shorter_one(tmp_path: Path, cache: Path) -> None:
    path = MAKERS["files.tar"](tmp_path / "files.tar", {"a": b"1", "b": b"2"})
    with path.open("r+b") as file:
        file.seek(1024)
        file.write(b"\xff" * 200)
    with pytest.raises(PflbenchError, match="header"):
        unpacked(path)
    assert list(cache.iterdir()) == []


def test_a_changed_byte_of_a_zip_is_seen(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a", b"x" * 1000)
    with path.open("r+b") as file:
        file.seek(500)
        file.write(b"y")
    with pytest.raises(PflbenchError, match="CRC"):
        unpacked(path)
    assert list(cache.iterdir()) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make", [as_zip, as_tar])
def test_two_members_of_one_name(make, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PflbenchError, match="two members"):
        unpacked(make(tmp_path / "files.zip", {"a/b": b"1", "a/./b": b"2"}))
    assert list(cache.iterdir()) == []


def test_a_file_where_a_folder_is(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PflbenchError, match="Cannot unpack"):
        unpacked(as_zip(tmp_path / "files.zip", {"a": b"1", "a/b": b"2"}))
    assert list(cache.iterdir()) == []


def test_a_member_larger_than_the_disk(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda _: archive.shutil._ntuple_diskusage(9, 9, 9))
    with pytest.raises(PflbenchError, match="the disk has less"):
        unpacked(as_zip(tmp_path / "files.zip", FILES))
    assert list(cache.iterdir()) == []


def test_no_archive_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_bytes(b"not a zip")
    with pytest.raises(PflbenchError, match="is no archive"):
        unpacked(tmp_path / "mine.zip")
    with pytest.raises(DataMissing, match="no file"):
        unpacked(tmp_path / "other.zip")
