"""What a method's functions return, looked at before it is used: a mistake is named in the method's own terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from pflbench.methods.base import Take
from pflbench.typing import Params

Tree = Any


class Malformed(TypeError):
    """A method returned something else than it should; the message says which function, and what it must return."""


def takes(found: Any, function: str) -> tuple[Take, ...]:
    """What `takes` or `adapts` returned.

    Raises:
        Malformed: It is no tuple of `Take`s; so for all functions here: what they are given is not what it should be.
    """
    if isinstance(found, Sequence) and all(isinstance(take, Take) for take in found):
        return tuple(found)
    shown = "one Take: write (Take(…),)" if isinstance(found, Take) else kind(found)
    raise Malformed(f"{function}() must return a tuple of Takes, not {shown}")


def participation(found: Any) -> tuple[Tree, Tree]:
    """What `client` returned: (upload, new client state)."""
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise Malformed(f"client() must return (upload, new client state), not {kind(found)}")
    sent, new = found
    return state(sent, "an upload", "client()"), state(new, "a client state", "client()")


def state(found: Tree, what: str, function: str) -> Tree:
    """A state or an upload: tensors, in tuples or NamedTuples, and no None among them."""
    for leaf in pytree.tree_leaves(found):
        if not isinstance(leaf, Tensor):
            nothing = "; write () for nothing" if leaf is None and leaf is not found else ""
            raise Malformed(f"{function} must return {what} of tensors, not {kind(leaf)}{nothing}")
    return found


def model(found: Any, function: str) -> Params:
    """One model ["params"]."""
    if isinstance(found, Tensor) and found.dim() == 1:
        return found
    raise Malformed(f"{function} must return one model, a vector of parameters, not {kind(found)}")


def models(found: Any) -> dict[str, Params]:
    """What `personalize` returned: models by stage, "personalized" among them."""
    if not isinstance(found, dict):
        raise Malformed(f'personalize() must return {{"personalized": model}}, not {kind(found)}')
    if "personalized" not in found:
        raise Malformed(f"personalize() returns the stages {', '.join(map(str, found))} without 'personalized'")
    return {stage: model(w, f"personalize()[{stage!r}]") for stage, w in found.items()}


def kind(found: Any) -> str:
    """What something is, in a few words."""
    if found is None:
        return "None (is a return missing?)"
    if isinstance(found, Tensor):
        return f"a tensor of shape {tuple(found.shape)}"
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    return f"{type(found).__name__} {found!r}" if isinstance(found, int | float | str | bool) else type(found).__name__
