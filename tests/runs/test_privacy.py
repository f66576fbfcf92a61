"""The accounting of privacy, against the definition by integration, published numbers, and bounds of others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from fedslot import compare, run
from fedslot.rounds.simulation import Simulation
from fedslot.runs.privacy import clip_norm, epsilon, privacy_of
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

CLIPPED = [{"name": "clip", "options": {"norm": 0.5}}, "noise"]


def _delta(mu: float, epsilon: float) -> float:
    """The definition: the largest excess of P over exp(epsilon) Q, of N(mu, 1) and N(0, 1), integrated."""

    def excess(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, mu) - np.exp(epsilon) * stats.norm.pdf(x))

    begin = epsilon / mu + mu / 2  # where the two are equal
    return integrate.quad(excess, begin, begin + 12 + mu, limit=200, epsabs=1e-14)[0]


@given(st.floats(0.2, 6), st.sampled_from([1e-2, 1e-4, 1e-6]))
def test_epsilon_has_the_delta_of_its_definition(mu, delta):
    (found,) = epsilon(np.array([mu]), delta)
    if found > 1e-6:
        assert _delta(mu, found) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("k", [1, 10, 400])
def test_epsilon_is_below_renyi_accounting_and_close_to_it(k):
    """Renyi differential privacy of order a: a mu^2 / 2 + log(1 / delta) / (a - 1), of k updates with mu^2 = k / 16."""
    delta, mu = 1e-5, np.sqrt(k) / 4

    def bound(order: float) -> float:
        return order * mu**2 / 2 + np.log(1 / delta) / (order - 1)

    renyi = optimize.minimize_scalar(bound, bounds=(1.001, 1000), method="bounded").fun
    (exact,) = epsilon(np.array([mu]), delta)
    assert 0.6 * renyi < exact < renyi


def test_a_gaussian_mechanism_with_unit_noise():
    """4.377 at delta 1e-5, as tables of Gaussian differential privacy have it for mu = 1."""
    assert epsilon(np.array([1.0]), 1e-5) == pytest.approx([4.3772], abs=1e-3)


def test_more_updates_cost_more_and_none_cost_nothing():
    privacy = privacy_of(0.5, np.array([2.0, 2.0, 2.0, 0.0, 0.0]), np.array([0, 1, 4, 0, 1]))
    assert privacy.epsilon[[0, 3]].tolist() == [0.0, 0.0]
    assert 0 < privacy.epsilon[1] < privacy.epsilon[2]
    assert privacy.epsilon[4] == privacy.largest == np.inf
    # four updates with noise 2 are as one with noise 1
    assert privacy.epsilon[2] == pytest.approx(privacy_of(0.5, np.array([1.0]), np.array([1])).largest)


@pytest.mark.parametrize(
    ("chain", "norm"),
    [
        (CLIPPED, 0.5),
        (["clip", "noise"], 1.0),
        (["noise"], None),
        (["noise", "clip"], None),
        (["clip", "small:Rounded", "noise"], None),
        (["small:Rounded", "clip", "noise", "small:Rounded"], 1.0),
    ],
)
def test_only_noise_after_clipping_counts(chain, norm):
    assert clip_norm(Scenario(chain=chain)) == norm


def _scenario(preset="quickstart", **more) -> Scenario:
    fields = {"rounds": 4, "chain": CLIPPED, "fleet.noise": 0.3, "fleet.noise_law": "equal", **more}
    return Scenario.load(preset, fields)


def test_a_run_counts_who_was_received():
    scenario = _scenario()
    simulation, counts = Simulation(scenario), np.zeros(scenario.data.ues)
    for step in simulation.rounds():
        for event in step.frame:
            if event.event in ("pulled", "pushed"):
                counts[event.ue] += 1
    result = run(scenario)
    privacy = result.privacy(delta=1e-6)
    expected = epsilon(2 * 0.5 * np.sqrt(counts) / 0.3, 1e-6)
    np.testing.assert_allclose(privacy.epsilon, expected)
    assert result.summary()["epsilon"] == pytest.approx(result.privacy().largest)
    assert str(privacy).startswith(f"epsilon at most {privacy.largest:.3g}, ")
    with pytest.raises(InputError, match="delta: 1 is not allowed; it must be above 0 and below 1"):
        result.privacy(delta=1)


@pytest.mark.parametrize(
    "more",
    [{"push.channel": "crdsa", "strategy.warmup": 0, "rounds": 20}, {"preset": "wifi"}],
    ids=["copies", "bursts"],
)
def test_an_update_of_several_slots_or_copies_counts_once(more):
    result = run(_scenario(**more))
    rows = result.frames["event"].isin(["pulled", "pushed"]).sum()
    received = int((result.rounds["pulled"] + result.rounds["push_received"]).sum())
    assert rows > received, "the trace has a row for each slot"
    most = result.frames[result.frames["event"].isin(["pulled", "pushed"])].groupby("ue")["round"].nunique().max()
    assert result.privacy().largest == pytest.approx(epsilon(np.array([2 * 0.5 * np.sqrt(most) / 0.3]))[0])


def test_runs_without_the_mechanism_have_no_epsilon(tmp_path):
    assert run(Scenario.load("quickstart", {"rounds": 1})).privacy() is None
    assert run(_scenario(rounds=1), tmp_path / "run", frames=False).privacy() is None
    assert run(_scenario(rounds=1, **{"fleet.noise": 0.0})).summary()["epsilon"] is None


def test_comparisons_have_epsilon_beside_the_accuracy():
    compared = compare(_scenario(rounds=2), ["fedavg", "push-pull"], seeds=2, workers=1)
    for name, estimates in compared.estimates().items():
        largest = [result.privacy().largest for result in compared.runs[name]]
        assert estimates["epsilon"].mean == pytest.approx(np.mean(largest))
