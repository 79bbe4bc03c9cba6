"""Checks of what a method returns: trees of tensors of one form."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.errors import UsageError
from pflbench.methods.base import Draw, Method
from pflbench.typing import Params

Tree = Any


def form(tree: Tree) -> str:
    """The structure of a tree with the type and shape of each tensor, in one line."""
    described = pytree.tree_map(lambda x: f"{str(x.dtype)[6:]}{[*x.shape]}" if isinstance(x, Tensor) else x, tree)
    return str(described).replace("'", "")


def returned(method: Method, what: str, made: Tree, like: Tree = None) -> Tree:
    """What a hook of a method returned.

    Args:
        method: The method.
        what: The result in words, with the name of the hook.
        made: The result.
        like: A tree of the form that it must have; None: tensors, in tuples or NamedTuples.

    Raises:
        UsageError: It has another form.
    """
    leaves, structure = pytree.tree_flatten(made)
    good = all(isinstance(leaf, Tensor) for leaf in leaves)
    if good and like is not None:
        expected, other = pytree.tree_flatten(like)
        good = structure == other and all(
            x.shape == y.shape and x.dtype == y.dtype for x, y in zip(leaves, expected, strict=True)
        )
    if not good:
        must = "tensors, in tuples or NamedTuples, and () for nothing" if like is None else form(like)
        raise UsageError(f"{type(method).__name__}: {what} is {form(made)}, and must be {must}.")
    return made


def draws(method: Method, hook: str, made: Any) -> tuple[Draw, ...]:
    """What `draws` or `personal_draws` returned. Raises `UsageError` unless it is a tuple of `Draw`s."""
    if isinstance(made, tuple | list) and all(isinstance(draw, Draw) for draw in made):
        return tuple(made)
    raise UsageError(f"{type(method).__name__}.{hook}() returned {made!r}: it must return a tuple, (Draw(…),).")


def pair(method: Method, made: Any, state: Tree) -> tuple[Tree, Tree]:
    """What `client` returned, given the client's state: (upload, new client state). Raises `UsageError`."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise UsageError(
            f"{type(method).__name__}.client() returned {form(made)}: it must return (upload, new client state)."
        )
    upload, new = made
    return returned(method, "the upload of client()", upload), returned(method, "the state of client()", new, state)


def models(method: Method, hook: str, made: Any, size: int) -> dict[str, Params]:
    """Models ["params"] that a hook returned, by stage; a lone model is "personalized". Raises `UsageError`."""
    by_stage = made if isinstance(made, dict) else {"personalized": made}
    if "personalized" in by_stage and all(isinstance(w, Tensor) and w.shape == (size,) for w in by_stage.values()):
        return by_stage
    raise UsageError(
        f"{type(method).__name__}.{hook}() returned {form(made)}: it must return a model [{size}], or a dict of models "
        "by stage, with 'personalized'."
    )
