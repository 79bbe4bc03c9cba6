"""`--executor ray`: on a Ray of one's own, and on a cluster of two nodes of which one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cli_kit import METHOD, start

from pflbench.store import Store
from pflbench.units import count

pytestmark = pytest.mark.slow

pytest.importorskip("ray")
SHARDS = ("run", "-s", "tiny.toml", "--column", "shards")
LOGGED = METHOD.replace(
    "        (batches,) = taken",
    "        import time\n"
    "        with open('LOG', 'a') as log:\n"
    "            log.write('x')\n"
    "        time.sleep(0.1)\n"
    "        (batches,) = taken",
)


def scores(results: Path) -> dict[str, object]:
    store = Store(results)
    return {run.spec.id: store.read(run.spec.id).scores for run in store.list()}


def listening(pid: int) -> set[str]:
    """The addresses at which a process, and those that it started, listen now; as Linux tells it."""
    parents, sockets = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                sockets[f"socket:[{inode}]"] = str(address(local.partition(":")[0]))
    found = set()
    for one in family:
        with suppress(OSError):
            found |= {sockets.get(str(file.readlink()), "") for file in Path(f"/proc/{one}/fd").iterdir()}
    return found - {""}


def address(words: str) -> Any:
    """Of an address as in /proc/net: hexadecimal words of the machine's byte order."""
    told = ip_address(b"".join(bytes.fromhex(words[k : k + 8])[::-1] for k in range(0, len(words), 8)))
    return getattr(told, "ipv4_mapped", None) or told


def until(process: subprocess.Popen[str], happens: Callable[[], bool]) -> None:
    """Wait until it happens, while a process runs."""
    end = time.monotonic() + 200
    while not happens():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.1)


def test_a_ray_of_one_s_own_gives_what_one_process_gives(cli, folder: Path) -> None:
    """Also with a method of one's own."""
    (folder / "foo.py").write_text(METHOD)
    both = (*SHARDS, "-m", "foo.py:Foo", "-m", "ditto", "--unchecked")
    assert cli(*both, "-r", "here").code == 0
    process = start(*both, "--executor", "ray", "--slots", "2", "-r", "there", cwd=folder)
    heard = set[str]()
    while process.poll() is None:
        heard |= listening(process.pid)
        time.sleep(0.3)
    out, err = process.communicate()
    assert process.returncode == 0 and not err, (out, err)
    assert heard == {"127.0.0.1"}  # Ray runs any code that reaches it
    assert (
        f"Running on {count(2, 'task')} of Ray, each with 1 core." in out
        and "4 runs finished, 0 failed, 0 not started" in out
    )
    assert scores(folder / "here") == scores(folder / "there") and len(scores(folder / "there")) == 4
    assert not (folder / "there" / "claims").exists()


def test_sigterm_ends_the_round_and_the_same_command_goes_on(folder: Path) -> None:
    log = folder / "updates.log"
    (folder / "foo.py").write_text(LOGGED.replace("LOG", str(log)))
    command = (*SHARDS, "-m", "foo.py:Foo", "--seeds", "0", "--rounds", "30", "--unchecked")
    here = start(*command, "-r", "here", cwd=folder)
    _, err = here.communicate(timeout=240)
    assert here.returncode == 0, err
    updates = len(log.read_text())
    log.unlink()
    ray = (*command, "--executor", "ray", "--slots", "1", "--checkpoint-every", "1000", "-r", "there")
    process = start(*ray, cwd=folder)
    until(process, lambda: log.exists() and len(log.read_text()) > 5)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 75 and "Stopped by SIGTERM." in err, (out, err)
    assert not list((folder / "there").glob("*/*.parquet")) and len(log.read_text()) < updates
    again = start(*ray, cwd=folder)
    out, err = again.communicate(timeout=240)
    assert again.returncode == 0 and "1 run finished, 0 failed, 0 not started" in out, (out, err)
    assert len(log.read_text()) <= updates + 1  # which each process makes once, before its first round
    assert scores(folder / "here") == scores(folder / "there")
    assert [run.provenance["resumed"] for run in Store(folder / "there").list()] == [1]


def test_a_cluster_that_is_not_there_is_one_message(cli, folder: Path) -> None:
    result = cli(*SHARDS, "--executor", "ray", "--ray-address", "127.0.0.1:1")
    assert result.code == 2 and "there is no Ray cluster at '127.0.0.1:1'" in result.err, result


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster of two nodes with a core each, on this machine, without a dashboard."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def test_a_task_that_is_killed_starts_again(folder: Path, nodes: Any) -> None:
    pids = folder / "pids"
    (folder / "foo.py").write_text(LOGGED.replace("LOG", str(pids)).replace("'x'", "f'{__import__(\"os\").getpid()} '"))
    command = ("run", "-s", "tiny.toml", "--column", "shards", "-m", "foo.py:Foo", "--unchecked", "--seeds", "0")
    process = start(
        *(*command, "--rounds", "20", "--executor", "ray", "--ray-address", nodes.address, "-r", "there"), cwd=folder
    )
    until(process, lambda: pids.exists() and len(pids.read_text().split()) > 3)
    os.kill(int(pids.read_text().split()[-1]), signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and "1 run finished, 0 failed, 0 not started" in out, (out, err)
    assert len(scores(folder / "there")) == 1


def test_a_cluster_of_two_nodes_of_which_one_is_killed(folder: Path, nodes: Any) -> None:
    log = folder / "updates.log"
    (folder / "foo.py").write_text(LOGGED.replace("LOG", str(log)))
    command = (*SHARDS, "-m", "foo.py:Foo", "--seeds", "0-5", "--rounds", "20", "--unchecked")
    here = start(*command, "-r", "here", cwd=folder)
    _, err = here.communicate(timeout=240)
    assert here.returncode == 0, err
    updates = len(log.read_text())
    log.unlink()
    process = start(*command, "--executor", "ray", "--ray-address", nodes.address, "-r", "there", cwd=folder)
    stored = folder / "there" / "runs"
    until(process, lambda: len(list(stored.glob("*.parquet"))) >= 2)
    nodes.remove_node(nodes.second, allow_graceful=False)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, (out, err)
    assert "6 runs finished, 0 failed, 0 not started" in out
    assert scores(folder / "there") == scores(folder / "here") and len(scores(folder / "here")) == 6
    assert len(log.read_text()) <= updates * 7 / 6 + 12  # but the killed one, none is trained twice
