"""Algorithm 1 as a whole: against a plain re-enactment, and what must hold whatever is run."""

import math
import re
from dataclasses import asdict
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from fedslot.access.channels import Channel
from fedslot.aggregation import AGGREGATIONS, Aggregate
from fedslot.data.sources import load
from fedslot.parts.kinds import KINDS, LINKS
from fedslot.rounds.round import Round, first_waiting, still_waiting
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.strategies import STRATEGIES, NoState
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.rng import stream
from fedslot.valuation import Valuation

SMALL = {
    "rounds": 4,
    "data.ues": 12,
    "frame.slots": 5,
    "frame.pull": 2,
    "push.contenders": 4,
    "training.epochs": 2,
    "training.lr": 0.05,
    "strategy.warmup": 1,
}


GO_BY_VALUE = {"push-pull", "planned", "load-split", "only-pull", "greedy-shap", "ucb", "s-fedavg"}
# slots of a whole frame; ten candidates answer in half a slot, rounded up, when asked
FRAME = {"power-of-choice": 6 + 2}


def _scenario(overrides: dict[str, object] | None = None) -> Scenario:
    return Scenario().replace({**SMALL, **(overrides or {})})


def _run(overrides: dict[str, object] | None = None) -> list[Round]:
    return [record for record, _, _ in Simulation(_scenario(overrides)).rounds()]


def _but_seconds(records: list[Round]) -> list[dict[str, object]]:
    return [{name: value for name, value in asdict(record).items() if name != "seconds"} for record in records]


HEARING = [name for name in STRATEGIES if name != "ps-alone"]  # which has a single round and no slots
OWN_FRAMES = {"planned", "load-split", "scout", "merit-push"}  # which decide on the slots of each frame


@pytest.mark.parametrize("name", HEARING)
def test_every_strategy_runs_on_digits_and_its_records_add_up(name):
    records = _run({"strategy.name": name})
    assert [record.round for record in records] == [0, 1, 2, 3]
    spent = 0
    for record in records:
        spent += record.cost_max
        assert record.slots_spent == spent
        assert 0 <= record.test_accuracy <= 1
        assert record.contenders == record.push_received + record.collided
        assert record.push_received <= 3
        assert record.cost_max <= FRAME.get(name, 6)
        received = record.pulled + record.push_received
        assert received + 1 <= record.cost_max + 1 or received == 0
        assert record.wasted == 0
        assert record.utilities == (2**received if name in GO_BY_VALUE and received else 0)
        assert record.seconds > 0
    if name in OWN_FRAMES:
        assert records[0].pulled == {"planned": 5, "load-split": 5}.get(name, 3)
        return
    pulled = {"push-pull": [5, 2, 2, 2], "only-pull": [5, 2, 2, 2], "centralized": [1] * 4}
    assert [record.pulled for record in records] == pulled.get(name, [5] * 4)
    pushes = [record.contenders for record in records]
    assert pushes == ([0, 4, 4, 4] if name == "push-pull" else [0] * 4)
    if name not in {"push-pull", "only-pull"}:
        cost = 2 if name == "centralized" else FRAME.get(name, 6)
        assert [record.cost_max for record in records] == [cost] * 4


def test_learning_happens():
    """Twenty rounds on clean, even data take a model from guessing to most digits right."""
    records = _run(
        {
            "rounds": 20,
            "fleet.noise": 0.0,
            "fleet.stragglers": 0.0,
            "data.alpha": 100.0,
            "training.epochs": 10,
            "strategy.name": "fedavg",
        }
    )
    assert records[-1].test_accuracy > 0.75
    assert records[-1].test_loss < records[0].test_loss


@pytest.mark.parametrize(
    ("field", "name"),
    [*(("strategy.name", name) for name in HEARING), *(("aggregation.name", name) for name in AGGREGATIONS)],
)
def test_going_on_from_a_snapshot_gives_the_rounds_of_an_unbroken_run(field, name):
    scenario = _scenario({"strategy.name": "fedavg", field: name})
    steps = list(Simulation(scenario).rounds())
    resumed = Simulation(scenario).rounds(steps[1].now)
    assert _but_seconds([step.round for step in resumed]) == _but_seconds([step.round for step in steps[2:]])


def test_strategies_with_one_seed_share_fleet_start_and_held_out_samples():
    """Common random numbers."""
    simulations = [Simulation(_scenario({"strategy.name": name, "seed": 3})) for name in HEARING]
    first = simulations[0]
    for other in simulations[1:]:
        assert np.array_equal(first.fleet.shares.samples, other.fleet.shares.samples)
        assert np.array_equal(first.fleet.shares.offsets, other.fleet.shares.offsets)
        assert np.array_equal(first.fleet.epochs, other.fleet.epochs)
        assert np.array_equal(first.fleet.noise, other.fleet.noise)
        assert torch.equal(first.model.initial, other.model.initial)
        for part in ("test", "validation", "utility"):
            assert torch.equal(getattr(first.held_out, part).x, getattr(other.held_out, part).x)
        # an update is the same whoever asks for it, and with whom
        one, many = (s.train(s.model.initial, np.array(ues), 2) for s, ues in ((first, [7]), (other, [3, 7, 9])))
        if not other.scenario.pools_data:
            torch.testing.assert_close(one.models[0], many.models[1], rtol=1e-5, atol=1e-6)
    assert not torch.equal(first.model.initial, Simulation(_scenario({"seed": 4})).model.initial)


def test_held_out_samples_are_split_without_overlap():
    simulation = Simulation(_scenario({"data.validation": 0.25, "valuation.samples": 50}))
    data = load("digits")
    held_out, validation = simulation.held_out, round(0.25 * len(data.y_test))
    sizes = [len(part.y) for part in (held_out.test, held_out.validation, held_out.utility)]
    assert sizes == [len(data.y_test) - validation, validation, 50]
    both = torch.cat([simulation.held_out.test.x, simulation.held_out.validation.x]).flatten(1)
    everything = torch.tensor(data.x_test).flatten(1)
    assert sorted(both.tolist()) == sorted(everything.tolist())
    assert torch.equal(simulation.held_out.utility.x, simulation.held_out.validation.x[:50])


def test_a_run_equals_a_plain_re_enactment():
    """FedAvg by hand: nn.Module and torch.optim per UE, NumPy for noise and averages."""
    scenario = _scenario({"strategy.name": "fedavg", "rounds": 2, "data.alpha": 0.3, "fleet.noise": 0.05})
    simulation = Simulation(scenario)
    fleet, module, data = simulation.fleet, simulation.model.module, load(scenario.data.dataset)
    x, y = torch.tensor(data.x_train), torch.tensor(data.y_train)
    state = simulation.model.initial.clone()
    for record, now, _ in simulation.rounds():
        ues = stream(scenario.seed, "schedule", record.round).choice(12, size=5, replace=False)
        locals_ = []
        for ue in ues:
            torch.nn.utils.vector_to_parameters(state.clone(), module.parameters())
            module.train()
            optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.5)
            share, shuffle = fleet.shares.share(ue), stream(scenario.seed, "shuffle", record.round, ue)
            for _ in range(fleet.epochs[ue]):
                for minibatch in np.array_split(shuffle.permutation(share), min(5, len(share))):
                    optimiser.zero_grad()
                    cross_entropy(module(x[minibatch]), y[minibatch]).backward()
                    optimiser.step()
            flat = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
            noise = stream(scenario.seed, "noise", record.round, ue).standard_normal(len(flat), dtype=np.float32)
            locals_.append(flat + fleet.noise[ue] * noise)
        state = torch.tensor(np.average(locals_, axis=0, weights=fleet.sizes[ues]), dtype=torch.float32)
        torch.testing.assert_close(now.model, state, rtol=1e-4, atol=1e-5)
        torch.nn.utils.vector_to_parameters(state, module.parameters())
        with torch.no_grad():
            scores = module.eval()(simulation.held_out.test.x)
        assert record.test_loss == pytest.approx(float(cross_entropy(scores, simulation.held_out.test.y)), rel=1e-4)
        assert record.test_accuracy == pytest.approx(
            float((scores.argmax(1) == simulation.held_out.test.y).float().mean()), abs=3e-3
        )


@pytest.mark.parametrize("utility", ["loss", "accuracy"])
def test_values_are_the_shapley_values_of_the_averaged_models(utility):
    """All orders of four UEs, each coalition averaged and evaluated by itself."""
    simulation = Simulation(_scenario({"valuation.name": "exact", "valuation.utility": utility}))
    start, received = simulation.model.initial, np.array([8, 2, 5, 0])
    updates = simulation.train(start, received, 0).models
    sizes = simulation.fleet.sizes[received]
    found = simulation.held_out.value(start, updates, sizes, 0)

    def worth(coalition: frozenset[int]) -> float:
        inside = sorted(coalition)
        weights = torch.tensor(sizes[inside] / sizes[inside].sum(), dtype=torch.float32)
        loss, accuracy = simulation.held_out.validation.evaluate(weights @ updates[inside] if inside else start)
        return -loss if utility == "loss" else accuracy

    worths = {coalition: worth(coalition) for coalition in map(frozenset, _subsets(4))}
    expected = np.zeros(4)
    for order in permutations(range(4)):
        for position, player in enumerate(order):
            expected[player] += worths[frozenset(order[: position + 1])] - worths[frozenset(order[:position])]
    np.testing.assert_allclose(found.values, expected / math.factorial(4), atol=1e-5 if utility == "loss" else 6e-3)
    assert found.utilities == 16


def _subsets(count: int) -> list[list[int]]:
    return [[player for player in range(count) if code >> player & 1] for code in range(2**count)]


@pytest.mark.parametrize("method", ["exact", "cyclic", "gtg", "kriging"])
def test_every_way_to_value_runs(method):
    records = _run({"valuation.name": method, "strategy.name": "greedy-shap", "frame.slots": 9, "frame.pull": 3})
    assert all(record.utilities > 0 for record in records)
    assert (max(record.value_error for record in records) > 0) == (method != "exact")


def test_only_received_ues_have_influence():
    """Samples of everyone who was not received may be anything."""
    plain, spoilt = Simulation(_scenario({"rounds": 1})), Simulation(_scenario({"rounds": 1}))
    received = set(range(5))  # the warm-up pulls the first five
    others = [spoilt.fleet.shares.share(ue) for ue in range(12) if ue not in received]
    spoilt.local.trainer.x[np.concatenate(others)] = torch.nan
    (_, one, _), (_, other, _) = next(plain.rounds()), next(spoilt.rounds())
    torch.testing.assert_close(one.model, other.model, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(one.state.value[:5], other.state.value[:5], rtol=1e-4)


def test_centralized_trains_on_the_data_of_its_senders_without_noise_or_straggling():
    overrides = {"strategy.name": "centralized", "strategy.share": 0.25, "rounds": 1}
    noisy = Simulation(_scenario({**overrides, "fleet.noise": 5.0, "fleet.stragglers": 1.0}))
    quiet = Simulation(_scenario({**overrides, "fleet.noise": 0.0, "fleet.stragglers": 0.0}))
    (record, after, _), (_, same, _) = next(noisy.rounds()), next(quiet.rounds())
    assert torch.equal(after.model, same.model)
    assert (record.pulled, record.cost_max, record.utilities) == (3, 4, 0)
    for ue, factor, alike in ((3, torch.nan, True), (2, 0.5, False)):  # the fourth UE does not send, the third does
        other = Simulation(quiet.scenario)
        other.trainer.x[other.fleet.shares.share(ue)] *= factor
        assert torch.equal(next(other.rounds())[1].model, same.model) == alike


@pytest.mark.parametrize("name", ["push-pull", "fedavg", "centralized"])
def test_a_round_in_which_nothing_is_received_leaves_the_model_as_it_is(name):
    """No UE is ready in time: every pull is wasted, no UE pushes, and the frame costs the downlink slot only."""
    simulation = Simulation(_scenario({"strategy.name": name, "fleet.computing": {"slot": 1e-9}, "frame.order": False}))
    for record, now, _ in simulation.rounds():
        assert torch.equal(now.model, simulation.model.initial)
        assert (record.pulled, record.push_received, record.contenders) == (0, 0, 0)
        assert record.wasted > 0
        assert (record.cost_max, record.cost_sum, record.utilities) == (1, 0, 0)
    assert record.slots_spent == 4


def test_contenders_may_be_whoever_is_ready():
    """Everyone is ready at once: all who are not pulled contend."""
    computing = {"fleet.computing": {"slot": 1e9}, "push.contenders": "ready"}
    records = _run({**computing, "strategy.warmup": 0})
    # not quite at once: the first pull slot begins with the downlink's end
    assert {record.contenders for record in records} == {10}
    barred = _run({**computing, "strategy.warmup": 0, "push.probability": "auto", "rounds": 40})
    assert np.mean([record.contenders for record in barred]) == pytest.approx(3, abs=4 * math.sqrt(10 * 0.21 / 40))


@pytest.mark.parametrize("name", HEARING)
@pytest.mark.parametrize("budget", [8, 11, 12, 17, 40])
def test_the_time_budget_is_kept(name, budget):
    """No frame begins that might not fit, with the asking before it, and one that fits does begin."""
    frame = FRAME.get(name, 6)
    records = _run({"strategy.name": name, "time_budget": budget, "rounds": 100, "training.epochs": 1})
    assert records[-1].slots_spent <= budget
    before = [0, *[record.slots_spent for record in records]]
    assert all(spent + record.cost_frame <= budget for spent, record in zip(before, records, strict=False))
    if name in OWN_FRAMES:  # which begin as long as they fit
        return
    assert before[-1] + frame > budget
    if name not in {"push-pull", "only-pull", "centralized"}:
        assert len(records) == budget // frame


def test_power_of_choice_pulls_the_highest_local_losses():
    """The first round by hand: every UE's loss of the initial model on its own samples, without its noise."""
    options = {"strategy.name": "power-of-choice", "strategy.options": {"candidates": 12}, "fleet.noise": 0.5}
    simulation = Simulation(_scenario({**options, "rounds": 1}))
    data, module = load("digits"), simulation.model.module
    torch.nn.utils.vector_to_parameters(simulation.model.initial.clone(), module.parameters())
    shares = [simulation.fleet.shares.share(ue) for ue in range(12)]
    with torch.no_grad():
        losses = [
            float(cross_entropy(module.eval()(torch.tensor(data.x_train[own])), torch.tensor(data.y_train[own])))
            for own in shares
        ]
    found = simulation.local.losses(simulation.model.initial, np.arange(12))
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    received: list[int] = []
    simulation.ps.strategy.observe = lambda state, receipt, values: received.extend(receipt.received.tolist()) or state
    ((record, _, _),) = simulation.rounds()
    assert received == sorted(range(12), key=lambda ue: -losses[ue])[:5]
    assert (record.cost_max, record.cost_sum) == (2 + 6, 5 * 2 + sum(range(2, 7)))


def test_candidates_are_drawn_by_the_sizes_of_the_fleet():
    simulation = Simulation(_scenario({"strategy.name": "power-of-choice"}))
    np.testing.assert_array_equal(simulation.ps.strategy.cell.sizes, simulation.fleet.sizes)


class AsksTooMany(STRATEGIES.find("power-of-choice")):
    """A user's own strategy that asks a UE that there is not."""

    def ask(self, state, round, rng):
        return np.arange(13)


def test_a_strategy_cannot_ask_whom_there_is_not():
    with pytest.raises(RefusedError, match="may ask each UE from 0 to 11 once"):
        _run({"strategy.name": f"{__name__}:AsksTooMany"})


def test_rounds_end_a_run_before_the_budget_does():
    assert len(_run({"time_budget": 10_000})) == 4


@pytest.mark.parametrize(
    "overrides",
    [
        {"training.lr": 1e6},
        {"training.lr": 1e4, "strategy.name": "fedavg"},
        {"training.lr": 1e6, "strategy.name": "centralized"},
        {"fleet.noise": 1e6, "valuation.name": "cyclic"},
        {"fleet.noise": 1e6, "valuation.name": "gtg", "training.lr": 1e3},
        {"fleet.noise": 1e6, "valuation.name": "exact", "training.lr": 1e2},
    ],
)
def test_divergence_is_told_in_one_line(overrides):
    with pytest.raises(RefusedError, match=r"round \d+: training diverged.*training\.lr") as caught:
        _run({"rounds": 60, **overrides})
    assert "\n" not in str(caught.value)


class NotFinite:
    """An aggregation whose model is not finite."""

    def init(self, model, ues):
        return NoState()

    def apply(self, state, updates):
        return Aggregate(updates.start, updates.start * float("nan"), state)


class Huge(NotFinite):
    """An aggregation whose model is finite, and its loss is not."""

    def apply(self, state, updates):
        model = torch.full_like(updates.start, 1e30)
        return Aggregate(model, model, state)


def test_a_model_without_a_finite_loss_has_diverged():
    """Also in the last round, after which nobody trains from it."""
    with pytest.raises(RefusedError, match="round 0: training diverged"):
        _run({"rounds": 1, "strategy.name": "fedavg", "aggregation.name": Huge})


def test_features_that_are_not_scaled_are_named_where_training_diverges(tmp_path):
    x, y = 1e6 * np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    np.savez(tmp_path / "large.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    overrides = {"rounds": 2, "data.dataset": str(tmp_path / "large.npz"), "data.ues": 12}
    with pytest.raises(RefusedError, match=r"training diverged.*scale the features"):
        _run(overrides)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"data.dataset": "mnits"}, "data.dataset"),
        ({"data.dataset": "missing.npz"}, "data.dataset"),
        ({"data.ues": 1001}, "data.ues"),
        ({"data.validation": 1e-9}, "data.validation"),
        ({"valuation.samples": 10_000}, "valuation.samples"),
        ({"training.device": "meta"}, "training.device"),
        ({"strategy.options": {"patience": 3}}, "strategy.options.patience"),
        ({"strategy.name": "power-of-choice", "time_budget": 7}, "time_budget"),
        ({"push.channel": "builtins:dict"}, "push.channel"),
        ({"push.channel": "capture", "push.channel.options": {"threshold": 3}}, "push.channel.options.threshold"),
        ({"training.pooled": True}, "training.pooled"),
        ({"strategy.name": "centralized", "aggregation.name": "median"}, "aggregation.name"),
        *[({kind.section: ["nope"] if kind is LINKS else "nope"}, kind.field) for kind in KINDS],
    ],
)
def test_what_cannot_run_is_refused_before_the_first_round(overrides, field):
    with pytest.raises(InputError) as caught:
        Simulation(_scenario(overrides))
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


class Lookahead:
    """A user's own aggregation, which broadcasts another model than it reports."""

    def init(self, model, ues):
        assert ues == 12
        return NoState()

    def apply(self, state, updates):
        mean = updates.local.mean(0)
        assert updates.val_losses(mean.unsqueeze(0))[0] > 0
        assert len(updates.inputs) == 398  # half of the test samples
        return Aggregate(updates.start + 2 * (mean - updates.start), mean, state)


def test_the_reported_model_is_evaluated_and_the_other_one_broadcast():
    simulation = Simulation(_scenario({"aggregation.name": f"{__name__}:Lookahead", "strategy.name": "fedavg"}))
    start = simulation.start()
    record, now, _ = next(simulation.rounds())
    assert record.test_loss == simulation.held_out.test.evaluate(now.report)[0]
    torch.testing.assert_close(now.model, start.model + 2 * (now.report - start.model))


@pytest.mark.parametrize("name", ["average", "filtered", f"{__name__}:Lookahead"])
def test_the_recorded_validation_loss_is_that_of_the_reported_model(name):
    """Also if the aggregation measured it, and if nothing was received."""
    overrides = {"rounds": 8, "aggregation.name": name, "strategy.name": "push-pull", "frame.pull": 0}
    simulation = Simulation(_scenario({**overrides, "push.contenders": 6, "strategy.warmup": 0}))
    steps = list(simulation.rounds())
    assert {record.push_received > 0 for record, _, _ in steps} == {True, False}
    for record, now, _ in steps:
        assert record.val_loss == pytest.approx(simulation.held_out.validation.evaluate(now.report)[0], rel=1e-5)


class OneForAll:
    """A valuation method that returns a single value, which NumPy would take for everyone's."""

    def __call__(self, game, rng):
        return Valuation(np.ones(1), np.zeros(1), 0)


class Undefined:
    """A valuation method that knows no value."""

    def __call__(self, game, rng):
        return Valuation(np.full(game.players, np.nan), np.zeros(game.players), 0)


@pytest.mark.parametrize(
    ("field", "part", "message"),
    [
        ("aggregation.name", "NotFinite", "returned a model that is not finite"),
        ("valuation.name", "OneForAll", "a finite value and a standard error for each of the 5 received UEs"),
        ("valuation.name", "Undefined", "a finite value and a standard error for each of the 5 received UEs"),
    ],
)
def test_what_ones_own_parts_return_is_checked(field, part, message):
    simulation = Simulation(_scenario({field: f"{__name__}:{part}"}))
    with pytest.raises(RefusedError, match=f"^round 0: .*{part} .*{message}"):
        next(simulation.rounds())


class LastSlotWins(Channel):
    """A user's own channel: everyone gets through, in the last slot."""

    def resolve(self, sent, slots, rng):
        return np.where(sent[:, :, 0] > 0, slots, 0)


def test_a_channel_of_ones_own_by_import_path():
    records = _run({"push.channel": f"{__name__}:LastSlotWins", "strategy.warmup": 0})
    assert [(record.push_received, record.collided, record.cost_max) for record in records] == [(4, 0, 6)] * 4


class BeyondTheFrame(Channel):
    """A user's own channel that receives in a slot that there is not."""

    def resolve(self, sent, slots, rng):
        return np.where(sent[:, :, 0] > 0, 99, 0)


def test_the_round_in_which_a_channel_fails_is_named():
    own = {"push.channel": f"{__name__}:BeyondTheFrame", "strategy.warmup": 1}
    with pytest.raises(RefusedError, match=r"^round 1: channel BeyondTheFrame must return .* from 0 to"):
        _run(own)


@settings(max_examples=120)
@given(st.data())
def test_small_scenarios_run_or_are_refused_with_one_line(scenario_fields, data):
    try:
        scenario = Scenario(**data.draw(scenario_fields))
        records = [step.round for step in Simulation(scenario).rounds()]
    except (InputError, RefusedError) as error:
        assert re.fullmatch(r"[^\n]+", str(error))  # noqa: PT017
        return
    assert 1 <= len(records) <= 2
    assert records[-1].slots_spent <= (scenario.time_budget or math.inf)


# Arrivals -----------------------------------------------------------------------------------------


def test_arrivals_come_at_their_rate_and_stay_until_received():
    """FedAvg never opens push slots: the backlog only grows, by Poisson arrivals that may hit the same UE twice."""
    rate, ues = 0.8, 200
    fields = {"strategy.name": "fedavg", "push.arrivals": rate, "data.ues": ues, "data.samples_per_ue": 5, "rounds": 30}
    simulation = Simulation(_scenario(fields))
    backlog = []
    for seed in range(8):
        simulation = Simulation(_scenario({**fields, "seed": seed, "training.epochs": 1}))
        before = None
        for record, now, _ in simulation.rounds():
            if before is not None:
                gone = np.flatnonzero(before & ~now.waiting)
                assert len(gone) <= record.pulled, "only received UEs leave the backlog"
            before = now.waiting
        backlog.append(now.waiting.sum())
    # in 30 frames of 6 slots; each slot's pulls take 5 of 200 UEs at random out of the backlog
    expected = 0.0
    for _ in range(30):
        expected = ues * (1 - (1 - expected * (1 - 5 / ues) / ues) * np.exp(-rate * 6 / ues))
    assert np.mean(backlog) == pytest.approx(expected, rel=0.1)


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 1000))
def test_arrivals_depend_on_nothing_but_the_slot(lengths, seed):
    """However slots are divided into frames, the same UEs have arrived at the end: all strategies see the same."""
    scenario = _scenario({"push.arrivals": 0.7, "seed": seed})
    at_once, in_frames, clock = first_waiting(scenario), first_waiting(scenario), 0
    nobody = np.empty(0, dtype=np.int64)
    for length in lengths:
        in_frames = still_waiting(scenario, in_frames, nobody, clock, clock + length)
        clock += length
    at_once = still_waiting(scenario, at_once, nobody, 0, clock)
    assert in_frames.tolist() == at_once.tolist()


def test_short_frames_find_fewer_new_contenders():
    """Contenders per frame follow the length of frames under arrivals, and do not under a fixed number."""
    means = {}
    for slots in (4, 20):
        fields = {"data.ues": 60, "frame.slots": slots, "frame.pull": 1, "strategy.warmup": 0, "training.epochs": 1}
        arrivals = {"push.arrivals": 0.2, "cost_rule": "frame", "rounds": 40}
        means[slots] = np.mean([record.contenders for record in _run({**fields, **arrivals})])
    assert means[20] > 2 * means[4]
