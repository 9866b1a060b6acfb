"""Opening a SQLite store: allowed file systems, file modes, and installation from a wheel or a zipapp."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import standfast
from standfast.db.sqlite import location as place
from standfast_prove.faults.children import Child, say
from standfast_prove.faults.rows import keys, put

ROOT = Path(__file__).resolve().parents[2]

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:50 / /home rw,relatime shared:3 - nfs4 server:/export rw,vers=4.2
31 30 254:1 / /home/local rw,relatime - xfs /dev/vdb rw
32 22 0:51 / /mnt/with\\040space rw - fuse.sshfs user@host:/ rw
33 22 0:52 / /mnt/c rw,noatime - 9p C:\\134 rw,dirsync
34 22 0:53 / /mnt/twice rw - nfs server:/old rw
35 34 254:2 / /mnt/twice rw - btrfs /dev/vdc rw
36 22 0:54 / /mnt/share rw master:7 propagate_from:2 - cifs //host/share rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/", "ext4"),
        ("/home/ann/.standfast", "nfs4"),
        ("/home", "nfs4"),
        ("/home/local/ann", "xfs"),
        ("/home2/ann", "ext4"),  # not below /home, although the path begins with these characters
        ("/mnt/with space/store", "fuse.sshfs"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/twice/store", "btrfs"),  # the later mount covers the earlier one
        ("/mnt/share/store", "cifs"),
    ],
)
def test_the_file_system_of_a_directory_is_found_in_the_list_of_mounts(directory: str, kind: str) -> None:
    assert place.find_type(MOUNTS, directory) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs", "ceph"])
def test_a_network_file_system_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """002-23, 002-24: the WAL needs shared memory and real locks; a network file system would silently lose rows."""
    monkeypatch.setattr(place, "file_system", lambda directory: kind)
    with pytest.raises(standfast.UnsafeStorage, match=f"network file system \\({kind}\\)") as caught:
        standfast.open(tmp_path / "standfast.db", data_dir=tmp_path)
    assert "STANDFAST_DATA_DIR" in caught.value.hint
    assert caught.value.exit_code == 78
    assert not (tmp_path / "standfast.db").exists()


def test_a_user_who_insists_may_use_an_unsafe_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "file_system", lambda directory: "nfs")
    monkeypatch.setenv("STANDFAST_UNSAFE_STORAGE", "1")
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as sf:
        put(sf, "k1")


@pytest.mark.parametrize(
    "folder",
    [
        "Dropbox",
        "Dropbox (Personal)",
        "OneDrive",
        "OneDrive - Example GmbH",
        "Google Drive",
        "Library/Mobile Documents/com~apple~CloudDocs",
        "Library/CloudStorage",
        "Nextcloud",
        "Syncthing",
    ],
)
def test_a_folder_of_a_file_sync_program_is_refused_by_its_name(tmp_path: Path, folder: str) -> None:
    """003-35: such programs replace files under a running process."""
    path = tmp_path / folder / "project" / "standfast.db"
    with pytest.raises(standfast.UnsafeStorage, match="synchronised"):
        standfast.open(path, data_dir=tmp_path)
    assert not path.exists()


@pytest.mark.parametrize("mark", [".stfolder", ".dropbox.cache", ".sync"])
def test_a_folder_of_a_file_sync_program_is_refused_by_its_mark(tmp_path: Path, mark: str) -> None:
    """003-35"""
    (tmp_path / "shared" / mark).mkdir(parents=True)
    with pytest.raises(standfast.UnsafeStorage, match="synchronised"):
        standfast.open(tmp_path / "shared" / "deep" / "standfast.db", data_dir=tmp_path)


def test_a_folder_that_only_sounds_alike_is_fine(tmp_path: Path) -> None:
    standfast.open(tmp_path / "dropbox-clone" / "standfast.db", data_dir=tmp_path).close()


def test_the_settings_of_dropbox_do_not_make_the_home_a_synced_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".dropbox").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    standfast.open(tmp_path / ".standfast" / "standfast.db", data_dir=tmp_path / ".standfast").close()


# -- names and links ---------------------------------------------------------------------------------------


def test_a_home_behind_a_link_works_and_is_one_store(tmp_path: Path) -> None:
    (tmp_path / "disk2" / "ann").mkdir(parents=True)
    (tmp_path / "ann").symlink_to(tmp_path / "disk2" / "ann")
    with standfast.open(tmp_path / "ann" / "standfast.db", data_dir=tmp_path) as linked:
        put(linked, "k1")
        with standfast.open(tmp_path / "disk2" / "ann" / "standfast.db", data_dir=tmp_path) as direct:
            assert keys(direct) == ["k1"]
            assert direct.engine is linked.engine


@pytest.mark.parametrize("suffix", ["", ".lock", ".bell"])
def test_a_link_instead_of_the_file_is_refused_and_its_target_not_changed(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"another user's")
    (tmp_path / f"standfast.db{suffix}").symlink_to(target)
    with pytest.raises(standfast.StorageError):
        standfast.open(tmp_path / "standfast.db", data_dir=tmp_path)
    assert target.read_bytes() == b"another user's"


def test_a_second_name_of_the_same_file_is_refused(tmp_path: Path) -> None:
    """A file with two names would have two WALs, which lost 200 acknowledged rows."""
    standfast.open(tmp_path / "standfast.db", data_dir=tmp_path).close()
    os.link(tmp_path / "standfast.db", tmp_path / "alias.db")
    for name in ("standfast.db", "alias.db"):
        with pytest.raises(standfast.UnsafeStorage, match="hard link"):
            standfast.open(tmp_path / name, data_dir=tmp_path)


def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "standfast.db"
    path.write_bytes(b"Dear diary,\n" * 1000)
    with pytest.raises(standfast.Corrupt):
        standfast.open(path, data_dir=tmp_path)
    assert path.read_bytes() == b"Dear diary,\n" * 1000


def test_a_refused_opening_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "standfast.db"
    path.write_bytes(b"Dear diary,\n" * 1000)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(standfast.Corrupt):
            standfast.open(path, data_dir=tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= before


# -- file modes ----------------------------------------------------------------------------------------------


def test_directory_and_files_are_private_from_the_first_byte(tmp_path: Path) -> None:
    """Modes are 0700 and 0600 for every umask, before the first write."""
    path = tmp_path / "deep" / "store" / "standfast.db"
    with Child("tests.db.test_sqlite_open:open_with_open_mask", path=str(path), data_dir=str(tmp_path)) as child:
        assert child.end() == ["0o700 deep", "0o700 store", *(f"0o600 {name}" for name in FILES)]


FILES = ["standfast.db", "standfast.db-shm", "standfast.db-wal", "standfast.db.bell", "standfast.db.lock"]


def open_with_open_mask(path: str, data_dir: str) -> None:
    store = Path(path).parent
    seen = [str(store), *(str(store / name) for name in FILES)]
    open_for_others: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        # Check at every event of the interpreter, not only at the end: other users may never have access to a file.
        for file in seen:
            with suppress(FileNotFoundError):
                if os.stat(file).st_mode & 0o077:
                    open_for_others.append(f"{file} at {event}")

    os.umask(0)
    sys.addaudithook(watch)
    with standfast.open(path, data_dir=data_dir) as sf:
        put(sf, "k1")
        for file in (store.parent, store, *sorted(store.iterdir())):
            say(f"{oct(file.stat().st_mode & 0o777)} {file.name}")
    assert open_for_others == []


# -- without a source tree -------------------------------------------------------------------------------------

USE = """
import standfast, sys
with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:
    lease = sf.leases.acquire("deploy")
    print(lease.fence, len(sf.journal.tail().events), standfast.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", place, ROOT]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    (built,) = place.glob("standfast-*.whl")
    return built


def library_beside(place: Path) -> Path:
    """A directory with apsw and nothing else, as an installer would make it."""
    import apsw

    package = Path(apsw.__file__).parent
    place.mkdir()
    shutil.copytree(package, place / package.name)
    for single in package.parent.glob("apsw*.so"):
        shutil.copy(single, place)
    return place


def run_isolated(command: list[str | Path], path: Path, **environment: str) -> list[str]:
    """Run outside the source tree, without site packages of this environment, for at most 30 s."""
    words, settings = [*command, path, path.parent], os.environ | environment
    done = subprocess.run(words, cwd=path.parent, capture_output=True, text=True, env=settings, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_store_is_made_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """003-14: schema and migrations are code inside the package.

    000-44, 003-2: on a clean installation it writes, exits, starts again and reads its rows, within 30 s.
    """
    site = library_beside(tmp_path / "site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    found = run_isolated([sys.executable, "-S", "-c", USE], tmp_path / "standfast.db", PYTHONPATH=str(site))
    assert found[:2] == ["1", "1"]
    assert found[2].startswith(str(site))
    again = run_isolated([sys.executable, "-S", "-c", USE], tmp_path / "standfast.db", PYTHONPATH=str(site))
    assert again[:2] == ["2", "2"]


def test_a_store_is_made_from_a_zipapp_with_apsw_beside_it(wheel: Path, tmp_path: Path) -> None:
    """003-14: standfast reads no file of its package by path at run time."""
    import zipfile

    application = tmp_path / "application"
    zipfile.ZipFile(wheel).extractall(application)
    (application / "__main__.py").write_text(USE)
    archive = tmp_path / "standfast.pyz"
    subprocess.run([sys.executable, "-m", "zipapp", application, "-o", archive], check=True)
    shutil.rmtree(application)
    site = library_beside(tmp_path / "site")
    found = run_isolated([sys.executable, "-S", archive], tmp_path / "standfast.db", PYTHONPATH=str(site))
    assert found[:2] == ["1", "1"]
    assert found[2].startswith(str(archive))
