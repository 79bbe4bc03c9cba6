"""Checks of what a method's functions return, whose messages name the function and what it must return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.methods.base import Draw
from pflbench.spec import MOST_METRICS
from pflbench.typing import Params

Tree = Any


class Malformed(TypeError):
    """A method returned something else than it should; the message says which function, and what it must return."""


def draws(made: Any, function: str) -> tuple[Draw, ...]:
    """Checked result of `draws` or `personal_draws`.

    Raises:
        Malformed: It is no tuple of `Draw`s. All functions here raise it for a malformed result.
    """
    if isinstance(made, Sequence) and all(isinstance(draw, Draw) for draw in made):
        return tuple(made)
    shown = "one Draw: write (Draw(…),)" if isinstance(made, Draw) else kind(made)
    raise Malformed(f"{function}() must return a tuple of Draws, not {shown}")


def local_update(made: Any) -> tuple[Tree, Tree]:
    """Checked result of `client`: (upload, new client state)."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise Malformed(f"client() must return (upload, new client state), not {kind(made)}")
    sent, new = made
    return state(sent, "an upload", "client()"), state(new, "a client state", "client()")


def metrics(made: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `diagnose`, which has at most `MOST_METRICS` numbers."""
    if len(made) > MOST_METRICS:
        raise Malformed(f"diagnose() must return at most {MOST_METRICS} numbers of a client, not {len(made)}")
    return made


def state(tree: Tree, what: str, function: str) -> Tree:
    """A state or an upload: tensors, in tuples or NamedTuples, and no None among them."""
    for leaf in pytree.tree_leaves(tree):
        if not isinstance(leaf, Tensor):
            nothing = "; write () for nothing" if leaf is None and leaf is not tree else ""
            raise Malformed(f"{function} must return {what} of tensors, not {kind(leaf)}{nothing}")
    return tree


def check_averaged(uploads: Tree, server: Tree) -> None:
    """Check that stacked uploads, which the default `server` averages, are like the server's state.

    Raises:
        Malformed: They are not like it, each; `client` is to blame.
    """
    must = "client() must return an upload like the server's state, as the mean of the uploads replaces it"
    new, old = pytree.tree_leaves(uploads), pytree.tree_leaves(server)
    if pytree.tree_structure(uploads) != pytree.tree_structure(server):
        raise Malformed(f"{must}: {kind(server)}, not {kind(pytree.tree_map(lambda u: u[0], uploads))}")
    for sent, kept in zip(new, old, strict=True):
        if sent.shape[1:] != kept.shape:
            raise Malformed(f"{must}: of shape {tuple(kept.shape)}, not {tuple(sent.shape[1:])}")
        if sent.dtype != kept.dtype:
            raise Malformed(f"{must}: in {precision(kept.dtype)}, not in {precision(sent.dtype)}")


def foreign(uploads: Tree, dtype: torch.dtype) -> str:
    """A message about uploads that are neither in the run's precision nor integers; empty for all others."""
    for leaf in pytree.tree_leaves(uploads):
        if leaf.is_floating_point() and leaf.dtype != dtype:
            return f"client() returns an upload in {precision(leaf.dtype)}, in a run in {precision(dtype)}"
    return ""


def precision(dtype: torch.dtype) -> str:
    """The name of a type without its module, such as `float32`."""
    return str(dtype).removeprefix("torch.")


def model(made: Any, function: str) -> Params:
    """One model ["params"]."""
    if isinstance(made, Tensor) and made.dim() == 1:
        return made
    raise Malformed(f"{function} must return one model, a vector of parameters, not {kind(made)}")


def models(made: Any, function: str) -> dict[str, Params]:
    """Result of `personal_model`, checked: models by stage; a lone model is "personalized"."""
    if not isinstance(made, dict):
        return {"personalized": model(made, function)}
    if "personalized" not in made:
        raise Malformed(f"{function} returns the stages {', '.join(map(str, made))} without 'personalized'")
    return {stage: model(w, f"{function}[{stage!r}]") for stage, w in made.items()}


def kind(value: Any) -> str:
    """A few words on a value, for messages."""
    if value is None:
        return "None (is a return missing?)"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, int | float | str | bool) else type(value).__name__
