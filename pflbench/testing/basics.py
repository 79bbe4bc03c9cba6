"""Checks before any training: each function of a method is called by itself, and its arguments and result observed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.engine import returned
from pflbench.engine.batches import support_streams
from pflbench.engine.client_map import Item
from pflbench.methods.base import Batches, Method, Objective, Round
from pflbench.stages import of_class
from pflbench.testing.case import SMALL, Case, Tree, client_key
from pflbench.testing.rounding import gaps
from pflbench.testing.tiny import tiny_federation

Call = Callable[[], Any]
Watch = Callable[[str, dict[str, Tree], Call], Any]
"""`watch(function, arguments by name, call)` calls a function of the method, and hands on what it returns."""

_VALID: dict[str, Callable[[Any], Any]] = {
    "init": lambda found: returned.state(found, "the server's state", "init()"),
    "init_client": lambda found: returned.state(found, "a client's state", "init_client()"),
    "client": returned.local_update,
    "server": lambda found: returned.state(found, "the server's state", "server()"),
    "deploy": lambda found: returned.model(found, "deploy()"),
    "personal_model": lambda found: returned.models(found, "personal_model()"),
}


def walk(case: Case, watch: Watch, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
    """Call each function of the method, as a round and its scoring would, through `watch`.

    `seed` draws the initial model.

    Raises:
        Malformed: A function returned something else than it should.
    """
    method, federation, new = case.method, tiny_federation(0), case.initializer(seed, dtype)

    def call(function: str, arguments: dict[str, Tree], body: Call) -> Any:
        return _VALID[function](watch(function, arguments, body))

    server = call("init", {}, lambda: method.init(new, int(federation.training.sum())))
    fresh = call("init_client", {"server": server}, lambda: method.init_client(server, new))
    server, fresh = pytree.tree_map_only(Tensor, Tensor.clone, (server, fresh))  # one may be a view of the other
    streams, clients = support_streams(federation, case.spec()), case.map("loop", federation)

    def local_update(f: Objective, server: Tree, own: Tree, *batches: Batches) -> tuple[Tree, Tree]:
        state, mine = own
        arguments = {"server": server, "state": state, "batches": batches}
        now = Round(0, mine)
        found: tuple[Tree, Tree] = call(
            "client", arguments, lambda: method.client(f, server, state, *batches, round=now)
        )
        return found

    items = [Item(0, (fresh, client_key(c)), case.drawn(streams[c])) for c in (3, 6)]
    (sent, state), (other, _) = clients(local_update, [server], items)
    uploads = pytree.tree_map(lambda *u: torch.stack(u), sent, other)
    n = torch.tensor([0.75, 0.25], dtype=torch.float64)
    arguments = {"server": server, "uploads": uploads, "n": n}
    if type(method).server is Method.server:
        returned.check_averaged(uploads, server)
    try:
        after = call("server", arguments, lambda: method.server(server, uploads, n, Round(0)))
        _alike("server()", "the server's state", server, after)
    except Exception as error:
        if told := returned.foreign(uploads, dtype):
            raise AssertionError(f"{told}, and server() makes nothing of it ({error})") from error
        raise

    def models(f: Objective, server: Tree, own: Tree, support: Batches, *batches: Batches) -> Tree:
        state, mine = own
        if case.deploys:
            w = call("deploy", {"server": server, "support": support}, lambda: method.deploy(f, server, support))
            size = case.network.layout.size
            assert w.shape == (size,), f"deploy() must return one model, ({size},), not {tuple(w.shape)}"
        if case.stages("after-aggregation", "personalized"):
            arguments = {"server": server, "state": state, "batches": batches}
            now = Round(0, mine)
            call("personal_model", arguments, lambda: method.personal_model(f, server, state, *batches, round=now))
        if of_class(type(method)).leaves:
            arguments = {"server": server, "state": state, "upload": sent}
            call(
                "personal_model",
                arguments,
                lambda: method.personal_model(f, server, state, round=Round(0), upload=sent),
            )
        return ()

    adapting, _ = streams[3].draw(returned.draws(method.personal_draws(), "personal_draws"), 0)
    clients(models, [server], [Item(0, (state, client_key(3)), ([federation.support[3]], *adapting))])


def returns(case: Case) -> None:
    """Each function returns what it should, in the run's precision; states keep their structure."""
    returned.draws(case.draws, "draws")
    for dtype in (torch.float64, torch.float32):
        found: dict[str, list[Any]] = defaultdict(list)
        walk(case, _defined(_recording(found)), dtype=dtype)
        _alike("client()", "the client's state", found["init_client"][0], found["client"][0][1])
        made = [("deploy()", w) for w in found["deploy"][:1]]
        for models in found["personal_model"]:
            made += [("personal_model()", w) for w in returned.models(models, "personal_model()").values()]
        for function, w in made:
            _alike(function, "a model", torch.empty(case.network.layout.size, dtype=dtype), w)


def _recording(found: dict[str, list[Any]]) -> Watch:
    def watch(function: str, arguments: dict[str, Tree], call: Call) -> Any:
        found[function].append(call())
        return found[function][-1]

    return watch


def _defined(watch: Watch) -> Watch:
    """The same, refusing a function that makes NaN of arguments that have none."""

    def watched(function: str, arguments: dict[str, Tree], call: Call) -> Any:
        made = watch(function, arguments, call)
        assert _has_nan(arguments) or not _has_nan(made), (
            f"{function}() returned NaN for arguments without NaN: look for a division by 0, a logarithm of 0, or a "
            "step that is too large"
        )
        return made

    return watched


def _has_nan(tree: Tree) -> bool:
    return any(x.isnan().any().item() for x in pytree.tree_leaves(tree) if isinstance(x, Tensor))


def _alike(function: str, what: str, before: Tree, after: Tree) -> None:
    """Assert that a tree has the same structure, shapes and types as another."""
    old, new = pytree.tree_leaves(before), pytree.tree_leaves(after)
    assert pytree.tree_structure(before) == pytree.tree_structure(after), (
        f"{function} must return {what} as it was, {returned.kind(before)}, not {returned.kind(after)}"
    )
    for x, y in zip(old, new, strict=True):
        assert x.shape == y.shape, f"{function} must return {what} of shape {tuple(x.shape)}, not {tuple(y.shape)}"
        names = [returned.precision(t.dtype) for t in (x, y)]
        hint = "; the weights n are float64 in every run: n.to(uploads.dtype)" if function == "server()" else ""
        assert x.dtype == y.dtype, f"{function} must return {what} in {names[0]}, as it was, not in {names[1]}{hint}"


def arguments_survive(case: Case) -> None:
    """No function changes its arguments."""

    def watch(function: str, arguments: dict[str, Tree], call: Call) -> Any:
        before = pytree.tree_map_only(Tensor, Tensor.clone, arguments)
        found = call()
        for name, was in before.items():
            now = zip(pytree.tree_leaves(was), pytree.tree_leaves(arguments[name]), strict=True)
            assert all(_same(x, y) for x, y in now), (
                f"{function}() changes its argument `{name}` in place; return new values instead"
            )
        return found

    walk(case, watch)


def own_randomness(case: Case) -> None:
    """No function draws from a global generator."""

    def watch(function: str, arguments: dict[str, Tree], call: Call) -> Any:
        before = _generators()
        found = call()
        for name, now in _generators().items():
            assert before[name] == now, (
                f"{function}() draws from {name}'s global generator, so that no run can be repeated; "
                "write round.noise(name, shape=…, dtype=…), in init() new.noise(…)"
            )
        return found

    walk(case, watch)


def _generators() -> dict[str, Any]:
    """The states of the global generators of numbers."""
    kind, words, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (kind, np.asarray(words).tobytes(), *rest),
    }


def forgets(case: Case) -> None:
    """A function returns the same for the same arguments, whatever was called in between."""
    first, again = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    walk(case, _recording(first))
    walk(case, _recording(defaultdict(list)), seed=1)
    walk(case, _recording(again))

    for function, found in first.items():
        # The same computation, so that nothing is rounded otherwise.
        same = all(gap.size <= SMALL * gap.scale for gap in gaps(again[function], found))
        assert same, (
            f"{function}() returns something else when it is asked again with the same arguments: it keeps a state "
            "outside of what it is given (in self, its class or its module), or draws random numbers of its own"
        )


def _same(x: Any, y: Any) -> bool:
    """True for two leaves that are equal in every entry, NaN included."""
    return torch.allclose(x, y, rtol=0, atol=0, equal_nan=True) if isinstance(x, Tensor) else bool(x == y)
