"""Further seeded faults, written with the tests: what `faults` does not have, and what these tests found in the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pflbench.engine import evaluate, host
from pflbench.engine.capture import Graphs
from pflbench.engine.client_map import ClientMap
from pflbench.engine.simulate import Simulation
from pflbench.models.ops import Ops

from .faults import Fault, Patch, edited


def features_read_unnamed() -> Patch:
    return edited(evaluate.Scorer, "_mapped", 'host.read(features, "features").tolist()', "features.tolist()")


def keys_on_host() -> Patch:
    old = "self.data.upload(np.array(keys, np.int64))"
    return edited(ClientMap, "keys", old, "torch.from_numpy(np.array(keys, np.int64))")


def one_client_is_the_end() -> Patch:
    old = "(len(items) == 1 and not self.graphs.holding)"
    return edited(ClientMap, "_if_it_fits", old, "len(items) == 1")


def graphs_stay_in_aggregation() -> Patch:
    return patch.object(ClientMap, "outside_graphs", lambda self, fn: fn())


def capture_does_not_wait() -> Patch:
    return edited(Graphs, "_record", "torch.cuda.current_stream().wait_stream(stream)", "pass")


def no_first_call() -> Patch:
    return edited(Graphs, "_record", "function(recorded.inputs)  # libraries", "pass  # libraries")


def noise_of_the_first_client() -> Patch:
    return edited(
        Simulation, "_local_updates", "Watched(self.rounds, private[1]", "Watched(self.rounds, items[0].private[1]"
    )


def dropout_of_the_process() -> Patch:
    old = "noise.uniform(self.key, (name,), x.shape[-2] * x.shape[-1], x.dtype).view_as(x)"
    return edited(Ops, "uniform", old, "torch.rand_like(x)")


def uploads_waited_for() -> Patch:
    return edited(host, "upload", "made.pin_memory().to(device, non_blocking=True)", "made.to(device)")


def cache_kept() -> Patch:
    return edited(ClientMap, "_stacks", "torch.cuda.empty_cache()", "pass")


@contextmanager
def graphs_never_let_go() -> Iterator[None]:
    with edited(Graphs, "clear", "self._recorded.clear()", "pass"):
        yield


MORE = (
    Fault("features-read-unnamed", "synchronization", "each client's features are waited for", features_read_unnamed),
    Fault("keys-on-host", "device mix", "training crashes", keys_on_host),
    Fault("one-client-is-the-end", "out of memory", "a client that fits without graphs fails", one_client_is_the_end),
    Fault("graphs-stay-in-aggregation", "out of memory", "the server's mean fails", graphs_stay_in_aggregation),
    Fault(
        "capture-does-not-wait", "stream order", "a capture begins before the first call ends", capture_does_not_wait
    ),
    Fault("no-first-call", "host data in a capture", "what is cached is made in the capture", no_first_call),
    Fault(
        "noise-of-first-client",
        "constant baked in",
        "replays have the noise of an old round",
        noise_of_the_first_client,
    ),
    Fault("dropout-of-the-process", "random number of the capture", "runs cannot be repeated", dropout_of_the_process),
    Fault("uploads-waited-for", "synchronization", "each minibatch is waited for", uploads_waited_for),
    Fault("cache-kept", "out of memory", "what is freed stays with the larger stacks", cache_kept),
    Fault("graphs-never-let-go", "out of memory", "halved stacks do not fit either", graphs_never_let_go),
)
