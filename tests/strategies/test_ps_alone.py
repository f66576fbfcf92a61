import numpy as np
import pytest

from fedslot import InputError, Scenario, compare, run
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.simulation import Simulation


def _alone(labelled: int | None = None, **fields: object) -> Scenario:
    return Scenario.load("quickstart", {"strategy.name": "ps-alone", "data.validation_samples": labelled, **fields})


def test_no_slot_is_spent_and_more_labels_help():
    few, many = (run(_alone(labelled, time_budget=200)) for labelled in (20, 300))
    for result in (few, many):
        row = result.rounds.iloc[-1]
        assert len(result.rounds) == 1
        assert (row.pulled, row.contenders, row.cost_max, row.cost_frame, row.cost_sum, row.slots_spent) == (0,) * 6
        assert result.summary()["stopped_by"] == "rounds"
    assert 0.4 < few.final_accuracy < many.final_accuracy - 0.05


@pytest.mark.parametrize(("labelled", "minibatches"), [(20, 2), (21, 3)])
def test_minibatches_have_ten_samples(labelled: int, minibatches: int):
    assert Simulation(_alone(labelled)).train.trainer.recipe.batches == minibatches


def test_it_learns_its_samples_and_nothing_else():
    """The validation loss, which is that of its own samples, is next to nothing; the fleet makes no difference."""
    result = run(_alone(30))
    assert result.rounds["val_loss"].iloc[0] < 0.01
    other = run(_alone(30, **{"fleet.noise": 0.0, "data.alpha": 0.1, "fleet.stragglers": 0.0}))
    np.testing.assert_array_equal(result.model, other.model)


def test_in_comparisons_it_takes_the_plain_average():
    quick = Scenario.load("quickstart", {"rounds": 2, "data.validation_samples": 20, "aggregation.name": "filtered"})
    comparison = compare(quick, ["ps-alone", "fedavg"], seeds=1, workers=1)
    assert [len(comparison.runs[name][0].rounds) for name in comparison.strategies] == [1, 2]
    assert comparison.horizon == comparison.runs["fedavg"][0].slots_spent
    assert comparison.runs["ps-alone"][0].final_accuracy == run(_alone(20)).final_accuracy
    assert comparison.runs["fedavg"][0].scenario.aggregation.name == "filtered"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"data.validation_samples": 400}, "data.validation_samples: 400 is not allowed; it must be at most 398"),
        ({"data.validation_samples": 390, "data.unlabelled_samples": 9}, "data.unlabelled_samples: 9 .* at most 8"),
        ({"data.validation_samples": 5, "valuation.samples": 6}, "valuation.samples: 6 .* at most 5"),
    ],
)
def test_the_ps_has_no_more_samples_than_there_are(fields, refused):
    with pytest.raises(InputError, match=refused):
        Simulation(Scenario.load("quickstart", fields))


def test_no_aggregation_touches_the_control():
    with pytest.raises(
        InputError, match=r"aggregation.name: 'fedadam' .* average where the PS trains, as under ps-alone"
    ):
        _alone(**{"aggregation.name": "fedadam"})


def test_labelled_and_unlabelled_samples_are_apart_from_the_test_set():
    scenario = Scenario.load("quickstart", {"data.validation_samples": 10, "data.unlabelled_samples": 25})
    few, all_of_them = Simulation(scenario), Simulation(Scenario.load("quickstart"))
    assert isinstance(few.held_out, HeldOut)
    assert (len(few.held_out.validation.y), len(few.held_out.inputs)) == (10, 35)
    np.testing.assert_array_equal(few.held_out.test.x, all_of_them.held_out.test.x)
    np.testing.assert_array_equal(few.held_out.inputs, all_of_them.held_out.inputs[:35])
