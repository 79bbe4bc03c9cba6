"""Modules of torch as networks: the same numbers as the module's own, looped and stacked, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from pflbench import names, trust
from pflbench.data.federation import Federation
from pflbench.engine.client_map import Execution
from pflbench.engine.simulate import RunOutcome, Setup, Simulation
from pflbench.errors import UsageError
from pflbench.methods.fedavg import FedAvg
from pflbench.models.module import wrap
from pflbench.models.network import Network
from pflbench.running import build
from pflbench.spec import Scoring
from pflbench.stages import of_class
from pflbench.testing import assert_same, nudged, tiny_federation, tiny_spec

SHAPE = (1, 8, 8)
CLASSES = 3
Made = Callable[[tuple[int, int, int], int], Any]


class Small(nn.Module):
    """A convolution, batch normalization, dropout and a dense layer before the head."""

    def __init__(self, shape: tuple[int, int, int], classes: int, dropout: float = 0.0, bias: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 4, 3, padding=1, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)
        self.dense = nn.Linear(4 * (shape[1] // 2) * (shape[2] // 2), 6)
        self.norm = nn.LayerNorm(6)
        self.fc = nn.Linear(6, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.bn(self.conv(x)).relu())
        return self.fc(self.norm(self.dense(h.view(len(h), -1))).tanh())


def small(shape: tuple[int, int, int] = SHAPE, classes: int = CLASSES) -> Small:
    return Small(shape, classes)


def resnet(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return torchvision.models.resnet18(num_classes=classes)


def transformer(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=shape[1], patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=classes
    )


def built(function: Made, shape: tuple[int, int, int] = SHAPE, classes: int = CLASSES) -> Network:
    return wrap(function, shape, classes, "nets.py:net")


def weights(net: Network, *seeds: int) -> Tensor:
    drawn = [torch.randn(net.layout.size, generator=torch.Generator().manual_seed(s)).double() for s in seeds or (0,)]
    return torch.stack([net.init(0).double() + 0.1 * noise for noise in drawn])


def images(*lead: int, shape: tuple[int, int, int] = SHAPE) -> Tensor:
    return torch.rand(*lead, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def filled(module: nn.Module, net: Network, w: Tensor) -> nn.Module:
    """The module itself on a vector's parameters and running statistics."""
    values, module = net.layout.views([w]), module.double()
    statistics = [(name, p) for name, p in module.named_buffers() if name.endswith(("mean", "var"))]
    with torch.no_grad():
        for name, p in [*module.named_parameters(), *statistics]:
            p.copy_(next(v for n, v in values.items() if n.partition(".")[2] == name).view_as(p))
    return module


# Parameters.


def test_parameters_are_the_modules_by_name_the_heads_last() -> None:
    net = built(small)
    assert [p.name for p in net.parameters] == [
        *("base.conv.weight", "base.bn.weight", "base.bn.bias", "base.bn.running_mean", "base.bn.running_var"),
        *("base.dense.weight", "base.dense.bias", "base.norm.weight", "base.norm.bias"),
        *("head.fc.weight", "head.fc.bias"),
    ]
    assert [p.kind[0] for p in net.parameters] == list("wnnsswbnnwb")
    assert list(net.layout.parts) == ["base", "head"] and net.batchwise and not net.drops
    assert net.layout.last(1) == net.layout.part("head")


def test_the_head_is_named_or_the_last_layer_of_so_many_outputs() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, CLASSES), nn.Linear(64, CLASSES)
            self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 64))

        def forward(self, x: Tensor) -> Tensor:
            return self.a(self.features(x)) + self.b(self.features(x))

    last, named = built(lambda *_: Two()), built(lambda *_: (Two(), "a"))
    assert [p.name for p in last.parameters if p.part == "head"] == ["head.b.weight", "head.b.bias"]
    assert [p.name for p in named.parameters if p.part == "head"] == ["head.a.weight", "head.a.bias"]
    assert last.features is None and named.features is None
    deep = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Sequential(nn.Linear(5, 4), nn.Linear(4, CLASSES)))
    of_two = built(lambda *_: (_again(deep), "2"))
    assert len([p for p in of_two.parameters if p.part == "head"]) == 4 and of_two.features is None


def _again(module: nn.Module) -> nn.Module:
    for m in module.modules():
        if isinstance(m, nn.Linear):
            m.reset_parameters()
    return module


def test_initial_values_are_the_modules_own_from_seed_and_number() -> None:
    before = torch.get_rng_state()
    net = built(small)
    drawn = [net.init(0), net.init(0, 1), net.init(1), net.init(1, 1)]
    assert torch.equal(before, torch.get_rng_state())
    assert len({tuple(w.tolist()) for w in drawn}) == 4 and torch.equal(net.init(1, 1), drawn[-1])
    assert drawn[0].dtype == torch.float32
    values = net.layout.views([drawn[0]])
    assert (values["base.bn.weight"] == 1).all() and (values["base.norm.bias"] == 0).all()
    bound = values["base.dense.weight"].shape[1] ** -0.5
    assert 0.9 * bound < values["base.dense.weight"].abs().max() <= bound


def test_parameters_used_twice_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.out = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.second(self.first(x.flatten(1)).tanh()))

    net = built(lambda *_: Tied())
    assert "base.second.weight" not in {p.name for p in net.parameters}
    w, x = weights(net)[0], images(3)
    torch.testing.assert_close(net.logits([w], x), filled(Tied(), net, w)(x))


# The forward pass.

PLAIN: dict[str, tuple[Made, tuple[int, int, int]]] = {
    "small": (small, SHAPE),
    "group norm": (
        lambda s, c: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, c)),
        SHAPE,
    ),
    "instance norm": (
        lambda s, c: nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.InstanceNorm2d(4, affine=True),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(144, c),
        ),
        SHAPE,
    ),
    "no base": (lambda s, c: nn.Sequential(nn.Flatten(), nn.Linear(64, c)), SHAPE),
    "transformer": (transformer, (3, 16, 16)),
}
each = pytest.mark.parametrize("name", PLAIN)


@each
@pytest.mark.parametrize("training", [True, False])
def test_logits_are_the_modules_own(name: str, training: bool) -> None:
    function, shape = PLAIN[name]
    net = built(function, shape)
    w, x = weights(net)[0], images(4, shape=shape)
    module = filled(function(shape, CLASSES), net, w).train(training)
    torch.testing.assert_close(net.logits([w], x, training=training), module(x).detach(), rtol=1e-9, atol=1e-9)


@each
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("stack", ["grouped", "columns"])
def test_a_stack_is_its_clients_on_their_real_rows(name: str, stack: str, training: bool) -> None:
    function, shape = PLAIN[name]
    net = built(function, shape)
    w, x, rows = weights(net, 0, 1, 2).requires_grad_(training), images(3, 4, shape=shape), (4, 2, 1)
    mask = torch.arange(4)[None] < torch.tensor(rows)[:, None]
    for real in (mask, None):
        stacked = net.logits([w], x, mask=real, stack=stack, training=training)
        taken = stacked if real is None else stacked * real[:, :, None]
        gradient = torch.autograd.grad(taken.square().sum(), w)[0] if training else None
        for i, n in enumerate(rows if real is not None else (4, 4, 4)):
            alone = w[i].detach().requires_grad_(training)
            logits = net.logits([alone], x[i, :n], training=training)
            torch.testing.assert_close(stacked[i, :n], logits, rtol=1e-8, atol=1e-8)
            if gradient is not None:
                (one,) = torch.autograd.grad(logits.square().sum(), alone)
                torch.testing.assert_close(gradient[i], one, rtol=1e-7, atol=1e-7)


def test_padded_rows_never_reach_real_ones() -> None:
    net = built(small)
    w, x = weights(net, 0, 1), images(2, 5)
    mask = torch.arange(5)[None] < torch.tensor([[5], [2]])
    other = torch.where(mask[:, :, None, None, None], x, 1 - x)
    a, b = (net.logits([w], images, mask=mask, stack="grouped", training=True) for images in (x, other))
    assert torch.equal(a[mask], b[mask])


@pytest.mark.parametrize("name", ["small", "no base", "transformer"])
def test_a_linear_head_applied_last_has_features(name: str) -> None:
    function, shape = PLAIN[name]
    net = built(function, shape)
    w, x = weights(net, 0, 1), images(2, 3, shape=shape)
    head = net.layout.part("head")
    z = net.represent([w[:, : head.start]], x, mask=None, stack="grouped")
    weight, bias = net.layout.of("head").views([w[:, head]]).values()
    assert z.shape == (2, 3, net.width)
    torch.testing.assert_close(
        torch.baddbmm(bias[:, None], z, weight.mT), net.logits([w], x, mask=None, stack="grouped")
    )
    torch.testing.assert_close(z[0], net.represent([w[0]], x[0]))


def test_dropout_is_drawn_by_the_key_the_same_looped_and_stacked() -> None:
    net = built(lambda s, c: Small(s, c, dropout=0.5))
    assert net.drops
    w, x, key = weights(net, 0, 1), images(2, 5), torch.tensor([5, 6])
    mask = torch.arange(5)[None] < torch.tensor([[5], [3]])
    stacked = net.logits([w], x, key, mask=mask, stack="grouped", training=True)
    for i, n in enumerate((5, 3)):
        torch.testing.assert_close(stacked[i, :n], net.logits([w[i]], x[i, :n], key[i], training=True))
    assert not torch.allclose(net.logits([w[0]], x[0], key[0]), net.logits([w[0]], x[0], key[1]))
    torch.testing.assert_close(net.logits([w[0]], x[0]), built(small).logits([w[0]], x[0]))


def test_many_entries_are_dropped_as_often_as_asked() -> None:
    net = built(lambda s, c: nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64, c)))
    w = torch.zeros(net.layout.size, dtype=torch.float64)
    w[:64] = 1
    found = net.logits([w], torch.ones(500, *SHAPE, dtype=torch.float64), torch.tensor(3))[:, 0]
    assert abs(found.mean() / 64 - 1) < 0.02 and abs(found.std() - (64 / 3) ** 0.5) < 0.5


# Training.


def federation(shape: tuple[int, int, int], sizes: tuple[int, ...], classes: int, seed: int = 0) -> Federation:
    """The tiny federation's pictures, larger and in color."""
    found = tiny_federation(seed, sizes)
    x = found.x.repeat(1, shape[0], 1, 1).repeat_interleave(shape[1] // 8, 2).repeat_interleave(shape[2] // 8, 3)
    return replace(found, x=x.contiguous(), classes=classes)


def trained(
    net: Network, execution: Execution, method: Any, data: Federation, nudge: int | None = None, **changes: Any
) -> RunOutcome:
    clients = len(data.support)
    scoring = Scoring(stages=("global",) if not of_class(type(method)).local else ("personalized",), clients="training")
    usual: dict[str, Any] = {
        "clients": clients,
        "cohort": clients - 2,
        "scoring": scoring,
        "rounds": 1,
        "batch": 4,
        "batches": "reshuffled",
    }
    spec = tiny_spec(**usual | changes)
    simulation = Simulation([spec], [data], method, net, Setup(execution=execution))
    if nudge is not None:
        run = simulation.runs[0]
        run.server, run.fresh = nudged((run.server, run.fresh), nudge)
    (outcome,) = simulation.run()
    assert outcome.failure is None, outcome.failure
    return outcome


def agree(net: Network, method: Any, data: Federation, **changes: Any) -> None:
    """Looped and stacked clients come to the same, but for what one rounding of the inputs explains."""
    looped, stacked = (trained(net, how, method, data, **changes) for how in ("loop", "vectorized"))
    controls = [trained(net, "loop", method, data, nudge=i, **changes).server for i in range(2)]
    assert_same(stacked.server, looped.server, *controls, what="looped and stacked clients")


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("function", [resnet, transformer])
def test_a_torchvision_model_trains_looped_and_stacked(function: Made, precision: str) -> None:
    """Two rounds in float32 that end in finite scores; one round of two steps with the same result."""
    shape = (3, 32, 32)
    net, data = (
        NETS.get(function) or NETS.setdefault(function, built(function, shape, 10)),
        federation(shape, (10, 9, 8, 8), 10),
    )
    agree(net, FedAvg(epochs=1, lr=0.01), data, precision=precision)
    if precision == "fp32":
        for how in ("loop", "vectorized"):
            outcome = trained(net, how, FedAvg(epochs=1, lr=0.01), data, precision=precision, rounds=2)
            assert outcome.scores and torch.isfinite(outcome.server).all()


NETS: dict[Made, Network] = {}

METHODS: dict[str, dict[str, Any]] = {
    "fedrep": {},
    "fedper": {},
    "pfedvem": {},
    "per-fedavg": {"order": "exact"},
    "ditto": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_train_a_module_looped_and_stacked(name: str) -> None:
    net = built(small)
    method = names.resolve("methods", name)(**METHODS[name])
    agree(net, method, tiny_federation(0))


def test_threads_of_clients_do_not_meet_in_a_module() -> None:
    shape = (3, 16, 16)
    net, data = built(transformer, shape), federation(shape, (13, 26, 9, 31, 18, 22, 4, 4), CLASSES)
    found = []
    for lanes in (1, 4):
        spec = tiny_spec(scoring=Scoring(stages=("global",)), rounds=1, cohort=6)
        simulation = Simulation([spec], [data], FedAvg(epochs=1, lr=0.05), net, Setup(execution="loop"))
        simulation.clients.lanes = lambda lanes=lanes: lanes  # type: ignore[misc]
        found.append(simulation.run()[0].server)
    assert torch.equal(*found)


@pytest.mark.parametrize("changes", [{"augment": "crop-flip"}, {}], ids=["augmented", "plain"])
def test_a_module_with_dropout_trains_looped_and_stacked(changes: dict[str, Any]) -> None:
    net = built(lambda s, c: Small(s, c, dropout=0.3))
    agree(net, FedAvg(epochs=1, lr=0.05), tiny_federation(0), **changes)


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
@pytest.mark.parametrize("function", [small, transformer])
def test_bf16_is_float32_rounded(function: Made, execution: Execution) -> None:
    shape = (3, 16, 16)
    net, data = built(function, shape, CLASSES), federation(shape, (13, 9, 4, 4), CLASSES)
    start, exact, rounded = (
        trained(net, execution, FedAvg(epochs=e, lr=0.05), data, precision=p).server
        for e, p in ((0, "fp32"), (1, "fp32"), (1, "bf16"))
    )
    assert rounded.dtype == torch.float32 and not torch.equal(rounded, exact)
    assert (rounded - exact).norm() < 0.2 * (exact - start).norm()


# What is refused.


class Odd(nn.Module):
    """A linear layer behind what a test does to the images' pixels."""

    def __init__(self, change: Callable[[Odd, Tensor], Tensor], dropout: float = 0.0, frozen: bool = False):
        super().__init__()
        self.fc, self.change = nn.Linear(64, CLASSES), change
        self.drop = nn.Dropout1d(dropout)
        self.fc.bias.requires_grad_(not frozen)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.change(self, x.flatten(1)))


class Scaled(nn.Module):
    """A linear layer with a constant in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, CLASSES)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1) * self.scale)


class Aside(nn.Module):
    """A module with a part that its output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.out, self.other = nn.Linear(64, 5), nn.Linear(5, CLASSES), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dense(x.flatten(1)))


class OneWeight(nn.Module):
    """A weight in the base and in the head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.fc = nn.Linear(64, 64), nn.Linear(64, CLASSES)
        self.first.bias = nn.Parameter(torch.zeros(64))
        self.again = nn.Linear(64, CLASSES)
        self.again.weight = self.fc.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.first(x.flatten(1))) + self.fc(x.flatten(1))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no parameters": (nn.Flatten, "no linear layer of 3 outputs"),
    "no such head": (lambda: (Small(SHAPE, CLASSES), "head"), "no head 'head'.*conv, bn, drop, dense, norm, fc"),
    "a head without parameters": (lambda: (Small(SHAPE, CLASSES), "drop"), "no head 'drop'"),
    "a frozen parameter": (lambda: Odd(lambda _, x: x, frozen=True), "not trained or not float32 .fc.bias."),
    "a tied head": (lambda: (OneWeight(), "fc"), "shares a parameter between its base and its head"),
    "an unused head": (Aside, "a head that its output does not depend on"),
    "a buffer": (Scaled, "a buffer .scale."),
    "running statistics": (
        lambda: nn.Sequential(nn.InstanceNorm2d(1, track_running_stats=True), nn.Flatten(), nn.Linear(64, CLASSES)),
        "a buffer .0.running_mean.",
    ),
    "random numbers": (lambda: Odd(lambda _, x: x * torch.rand(1)), "torch.vmap.*random"),
    "dropout of a function": (lambda: Odd(lambda m, x: F.dropout(x, 0.5, m.training)), "torch.vmap.*random"),
    "dropout of channels": (lambda: Odd(lambda m, x: m.drop(x), dropout=0.5), "torch.vmap.*random"),
    "attention's dropout": (
        lambda: nn.Sequential(nn.Flatten(), nn.TransformerEncoderLayer(64, 2, 8), nn.Linear(64, CLASSES)),
        "torch.vmap.*random",
    ),
    "mixed rows": (lambda: Odd(lambda _, x: x - x.mean(0)), "mixes the rows"),
    "a value looked at": (lambda: Odd(lambda _, x: x if x.sum() > 0 else -x), "cannot be run for a stack of clients"),
    "no derivative": (lambda: nn.Sequential(Odd(lambda _, x: x), Detached()), "output does not depend on"),
    "half precision": (lambda: Odd(lambda _, x: x).half(), "not float32 .fc.weight."),
    "double precision": (lambda: Odd(lambda _, x: x).double(), "not float32"),
    "rows reshaped": (
        lambda: nn.Sequential(nn.Unflatten(2, (2, 4)), Folded(), nn.Linear(16, CLASSES)),
        "8 rows, where the batch has 4",
    ),
}


class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


class Folded(nn.Module):
    """Normalizes pieces of images as if they were rows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = nn.BatchNorm1d(32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.norm(x.reshape(-1, 32))).reshape(len(x), 16)


@pytest.mark.parametrize("name", REFUSED)
def test_what_clients_cannot_train_is_refused_in_a_sentence(name: str) -> None:
    function, said = REFUSED[name]
    with pytest.raises(UsageError, match=f"^The module of nets.py:net .*{said}.*[.]$"):
        built(lambda *_: function())


@pytest.mark.parametrize("execution", ["loop", "vectorized"])
def test_one_row_has_no_statistics(execution: Execution) -> None:
    """Torch's error, in a stack too, whose mask hides that a client's minibatch has one row."""
    net = built(lambda s, c: nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, c)))
    assert net.least == 2 and built(small).least == 1
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        trained(net, execution, FedAvg(epochs=1), tiny_federation(0, (13, 12, 13, 12, 13, 12, 4, 4)))


def test_a_function_that_forgets_its_seed_is_refused() -> None:
    generator = torch.Generator()

    def drawn(shape: tuple[int, int, int], classes: int) -> nn.Module:
        module = Small(shape, classes)
        nn.init.normal_(module.dense.weight, generator=generator)
        return module

    with pytest.raises(UsageError, match="other initial values"):
        built(drawn)
    sizes = iter(range(5, 100))
    with pytest.raises(UsageError, match="other initial values"):
        built(lambda s, c: nn.Sequential(nn.Flatten(), nn.Linear(64, n := next(sizes)), nn.Linear(n, c)))


def test_what_the_modules_own_code_raises_is_told_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        built(lambda s, c: nn.Sequential(nn.Flatten(), nn.Linear(63, c)))
    with pytest.raises(UsageError, match="must return a module"):
        built(lambda s, c: (Small(s, c), 3))


def test_the_documents_modules_are_networks(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "code.md").read_text(encoding="utf-8")
    (tmp_path / "mymodules.py").write_text(text.split("# lab/mymodules.py\n")[1].split("```")[0], encoding="utf-8")
    spec = tiny_spec(dataset="rotated-digits", partition="shards")
    for name in ("Residual", "resnet18"):
        reference = f"{tmp_path / 'mymodules.py'}:{name}"
        trust.grant(reference)
        version = names.code(reference).version
        own = spec.model_copy(update={"model": f"mymodules.py:{name}", "model_version": version})
        if name == "Residual":
            net = build.network(own, {"models": reference})
            assert net.width == 16 and net.drops and net.batchwise
            continue
        # Digits have one channel.
        with pytest.raises(UsageError, match=r"resnet18 makes no network of .* 3 channels, but got 1"):
            build.network(own, {"models": reference})
