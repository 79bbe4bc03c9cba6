"""Seeded faults of the GPU path, written blind: before the tests that are to catch them, and without having seen these.

Each is a mistake that people make when they change such code. On CUDA it crashes, waits for the device, or gives wrong
numbers, while runs on a CPU, looped and stacked, agree as before (`test_faults_apply` shows that). Most are one line of
the engine or of a method, changed in its source: where that line is no longer there, `edited` says so, and the fault
is to be written anew for the line that took its place.
"""

from __future__ import annotations
import __future__

import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch import Tensor

from pflbench.engine import augment, evaluate, objective, simulate, stack
from pflbench.engine.capture import Graphs, _Recorded
from pflbench.engine.client_map import ClientMap
from pflbench.engine.objective import StackedObjective
from pflbench.engine.run import Run
from pflbench.engine.states import States
from pflbench.methods.base import Round
from pflbench.methods.cafeme import CAFeMe
from pflbench.methods.fedavg import FedAvg
from pflbench.methods.pfedvem import PFedVEM
from pflbench.methods.scaffold import Scaffold
from pflbench.models.ops import Columns, Ops
from pflbench.running import allocator, job

Kind = Literal[
    "synchronization",
    "device mix",
    "constant baked in",
    "random number of the capture",
    "aliasing",
    "stale shape",
    "replaced input",
    "stream order",
    "host data in a capture",
    "memory figure",
    "out of memory",
]
Patch = AbstractContextManager[object]


@dataclass(frozen=True)
class Fault:
    """A mistake: `apply` makes it until its context ends; `what` says what it does on CUDA."""

    name: str
    kind: Kind
    what: str
    apply: Callable[[], Patch]


def edited(owner: Any, name: str, old: str, new: str) -> Patch:
    """The function `name` of a module or class with `old`, which is in its source once, replaced by `new`.

    Raises:
        LookupError: `old` is not there once, as the code has changed.
    """
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise LookupError(f"{owner.__name__}.{name} has {old!r} {source.count(old)} times, not once: write it anew")
    flags, made = __future__.annotations.compiler_flag, dict[str, Any]()
    code = compile(source.replace(old, new), f"<fault in {name}>", "exec", flags=flags, dont_inherit=True)
    exec(code, function.__globals__, made)
    return patch.object(owner, name, made[name])


# What is recorded and replayed.


def outputs_not_cloned() -> Patch:
    """Only what is an input seems to need a copy: but a graph has one place for its outputs."""
    inputs = "{i.untyped_storage().data_ptr() for i in self.inputs}"
    shared = f"output.untyped_storage().data_ptr() in {inputs}"
    new = f"output.clone() if {shared} else output for output in"
    return edited(_Recorded, "__call__", "output.clone() for output in", new)


def inputs_rebound() -> Patch:
    """The next inputs take the names of the fixed ones, not their places."""
    old = "for static, new in zip(self.inputs, tensors, strict=True):\n        static.copy_(new)"
    return edited(_Recorded, "__call__", old, "self.inputs = [new.clone() for new in tensors]")


def only_changes_copied() -> Patch:
    """Whether an input has changed is asked on the host."""
    return edited(_Recorded, "__call__", "static.copy_(new)", "torch.equal(static, new) or static.copy_(new)")


def replayed_aside() -> Patch:
    """The replay has a stream of its own, which waits for no copy into it and for which no copy out of it waits."""
    new = "with torch.cuda.stream(torch.cuda.Stream()): self.graph.replay()"
    return edited(_Recorded, "__call__", "self.graph.replay()", new)


def warmed_up_early() -> Patch:
    """The first call, on another stream, does not wait until its inputs are copied: row numbers are garbage."""
    return edited(Graphs, "_record", "stream.wait_stream(torch.cuda.current_stream())", "pass")


def want_of_memory_uncapturable() -> Patch:
    """OutOfMemoryError is a RuntimeError, so records end for good where a smaller stack was due."""
    return edited(Graphs, "_record", "    except torch.OutOfMemoryError:\n        return None\n", "")


def clients_not_in_key() -> Patch:
    """The first axis, of clients, seems to make no other computation: the last, smaller stack meets a larger record."""
    return edited(Graphs, "__call__", "tuple(t.shape)", "tuple(t.shape[1:])")


# Stacks and their chunks.


def server_closed_over() -> Patch:
    """The server's state, the same for all clients of a run, is not handed to the record: it keeps the first one's."""
    new = "lambda common, *args: fn(f, shared[runs[0]] if alone else common, *args)"
    return edited(ClientMap, "_one_stack", "Mapped(call,", f"Mapped({new},")


def records_outlive_want_of_memory() -> Patch:
    """What the graphs hold is not there for the smaller stacks."""
    return edited(ClientMap, "_stacks", "self.graphs.clear()", "pass")


def halving_forgotten() -> Patch:
    """Each map begins with all clients, whatever did not fit since."""
    return edited(
        ClientMap, "_stacks", "most = self._most.get(key, self.chunk)", "most = self._most.pop(key, self.chunk)"
    )


def labels_on_host() -> Patch:
    """Rows go to the device, their labels do not."""
    return edited(stack, "pad", "upload(labels[rows])", "torch.from_numpy(labels[rows])")


def looked_every_round() -> Patch:
    """A diverged run is to end at once: each round waits for the device."""
    aggregate = simulate._aggregate

    def checked(run: Run, *args: Any) -> None:
        aggregate(run, *args)
        run.check()

    return patch.object(simulate, "_aggregate", checked)


def states_on_host() -> Patch:
    """Clients' states are to spare the device's memory: each waits for it, and does not come back to it."""
    new = "pytree.tree_map(lambda leaf: leaf.cpu().clone(), state)"
    return edited(States, "__setitem__", "pytree.tree_map(owned_copy, state)", new)


# What is computed in a stack.


def real_rows_picked() -> Patch:
    """Padded rows are left out by a boolean index, whose result has a length that only the device knows."""
    new = "each.new_zeros(len(each)).index_add(0, b.mask.nonzero()[:, 0], each[b.mask])"
    return edited(StackedObjective, "_losses", "torch.where(b.mask, each, 0).sum(1)", new)


def mask_asked() -> Patch:
    """A mask of real rows alone takes the shorter way, which the host must know; in stacks of columns only."""
    return edited(Columns, "batch_norm", "if self.mask is None:", "if self.mask is None or self.mask.all():")


def decay_made_anew() -> Patch:
    """Without its cache, each gradient has the decay's vector made on the host and copied, in a capture, too."""
    return patch.object(objective, "_decay", inspect.unwrap(objective._decay))


def entries_on_host() -> Patch:
    """Which entries are a normalization's stays on the host, as FedBN's models do not."""
    return edited(objective, "_entries", "host.upload(layout.entries(kind), device)", "layout.entries(kind)")


def crops_by_the_host() -> Patch:
    """Augmentation reads its keys on the host, and a record that went through would repeat its crops for ever."""
    crop = augment.crop_flip

    def by_host(images: Tensor, key: Tensor) -> Tensor:
        return crop(images, torch.tensor(key.tolist(), device=key.device))

    return patch.object(objective, "crop_flip", by_host)


def classes_on_host() -> Patch:
    """The numbers of classes that labels are held against are on the host; in CAFeMe with labels only."""
    return edited(Ops, "labelled", "torch.arange(classes, device=labels.device)", "torch.arange(classes)")


# Methods.


def rate_of_a_round() -> Patch:
    """FedAvg's rate falls by the round, which it has seen in `draws`, where nobody notes that it asks."""
    draws = FedAvg.draws

    def noted(self: FedAvg, round: Round) -> Any:
        object.__setattr__(self, "_now", round.index)
        return draws(self, round)

    def client(self: Any, f: Any, server: Tensor, state: Any, *batches: Any, round: Round) -> Any:
        return self.trained(f, server, *batches, lr=self.lr * 0.9 ** vars(self).get("_now", 0)), state

    return patch.multiple(FedAvg, draws=noted, client=client)


def order_by_a_coin() -> Patch:
    """CAFeMe's inner minibatches begin at a place that Python draws for the round: a record keeps one place."""
    draws, client = CAFeMe.draws, CAFeMe.client

    def noted(self: CAFeMe, round: Round) -> Any:
        object.__setattr__(self, "_coin", round.coin or 0.0)
        return draws(self, round)

    def rotated(self: Any, f: Any, server: Any, state: Any, inner: Any, outer: Any, *, round: Round) -> Any:
        first = int(vars(self).get("_coin", 0.0) * len(inner))
        return client(self, f, server, state, inner[first:] + inner[:first], outer, round=round)

    return patch.multiple(CAFeMe, draws=noted, client=rotated)


def sure_clients_picked() -> Patch:
    """pFedVEM's server leaves out clients without confidence by a boolean index: each round waits for the device."""
    old = "mean(uploads.mu, uploads.tau / uploads.tau.sum())"
    new = "mean(uploads.mu[uploads.tau > 0], uploads.tau[uploads.tau > 0] / uploads.tau.sum())"
    return edited(PFedVEM, "server", old, new)


def clients_counted_on_host() -> Patch:
    """SCAFFOLD's server reads its N, a tensor: each round waits for the device."""
    return edited(Scaffold, "server", ".sum(0) / server.clients", ".sum(0) / int(server.clients)")


# Scoring.


def rate_from_host() -> Patch:
    """Fine-tuning has its rate as a tensor, which is copied from the host in the capture."""
    new = "w - torch.tensor(lr, dtype=w.dtype, device=w.device) * f.grad(w, b)"
    return edited(evaluate, "tuned", "sgd(w, f.grad(w, b), lr=lr)", new)


def compared_on_host() -> Patch:
    """Hits are counted where labels are thought to be."""
    new = "logits.argmax(-1).cpu() == b.labels.cpu()"
    return edited(evaluate, "score", "logits.argmax(-1) == b.labels", new)


def means_from_host() -> Patch:
    """The sum of features begins with zeros on the host."""
    new = "torch.zeros(f.features(w, batches[0]).shape[-1], dtype=w.dtype)"
    return edited(evaluate, "_means", "torch.zeros_like(f.features(w, batches[0])[0])", new)


# Memory, and the executor.


def in_limited(old: str, new: str) -> Callable[[], Patch]:
    """An edit of `limited`, which the task has by its name."""

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with edited(allocator, "limited", old, new), patch.object(job, "limited", allocator.limited):
            yield

    return both


def device_not_set() -> Patch:
    """A run on cuda:1 records on the streams of cuda:0."""
    return edited(job, "_prepare", "torch.cuda.set_device(execution.device)", "pass")


TOTAL = "torch.cuda.get_device_properties(device).total_memory"
UNDONE = "torch.cuda.set_per_process_memory_fraction(1.0, device)"

BLIND = (
    Fault("outputs-not-cloned", "aliasing", "two stacks of a round share their results", outputs_not_cloned),
    Fault("inputs-rebound", "replaced input", "replays read the first inputs, which are freed", inputs_rebound),
    Fault("only-changes-copied", "synchronization", "each input of each replay is waited for", only_changes_copied),
    Fault("replayed-aside", "stream order", "replays race with the copies around them", replayed_aside),
    Fault("warmed-up-early", "stream order", "the first call reads what is not copied yet", warmed_up_early),
    Fault("memory-uncapturable", "out of memory", "records end, stacks stay as large", want_of_memory_uncapturable),
    Fault("clients-not-in-key", "stale shape", "a smaller stack crashes in a larger one's record", clients_not_in_key),
    Fault("server-closed-over", "replaced input", "replays train from an old model", server_closed_over),
    Fault("records-outlive-memory", "out of memory", "halved stacks do not fit either", records_outlive_want_of_memory),
    Fault("halving-forgotten", "out of memory", "memory runs out in every round", halving_forgotten),
    Fault("labels-on-host", "device mix", "the loss crashes", labels_on_host),
    Fault("looked-every-round", "synchronization", "each round is waited for", looked_every_round),
    Fault("states-on-host", "synchronization", "each state is waited for, and the next stack crashes", states_on_host),
    Fault("real-rows-picked", "synchronization", "nothing ragged can be captured", real_rows_picked),
    Fault("mask-asked", "synchronization", "nothing ragged with a normalization can be captured", mask_asked),
    Fault("decay-made-anew", "host data in a capture", "nothing with weight decay can be captured", decay_made_anew),
    Fault("entries-on-host", "device mix", "FedBN crashes", entries_on_host),
    Fault("crops-by-the-host", "synchronization", "nothing augmented can be captured", crops_by_the_host),
    Fault("classes-on-host", "device mix", "CAFeMe with labels crashes", classes_on_host),
    Fault("rate-of-a-round", "constant baked in", "replays have the rate of an old round", rate_of_a_round),
    Fault("order-by-a-coin", "random number of the capture", "replays have the order of an old round", order_by_a_coin),
    Fault("sure-clients-picked", "synchronization", "each round is waited for", sure_clients_picked),
    Fault("clients-counted-on-host", "synchronization", "each round is waited for", clients_counted_on_host),
    Fault("rate-from-host", "host data in a capture", "no fine-tuning can be captured", rate_from_host),
    Fault("compared-on-host", "synchronization", "scores are waited for, or crash", compared_on_host),
    Fault("means-from-host", "device mix", "scoring with features crashes", means_from_host),
    Fault(
        "limit-of-what-is-free",
        "memory figure",
        "the share is of less than all, so that more than the limit is taken",
        in_limited(TOTAL, "torch.cuda.mem_get_info(device)[0]"),
    ),
    Fault(
        "limit-stays",
        "out of memory",
        "the process's next run has the limit, too",
        in_limited(UNDONE, "pass"),
    ),
    Fault(
        "device-not-set", "device mix", "on any but the first GPU nothing is recorded, or it crashes", device_not_set
    ),
)
