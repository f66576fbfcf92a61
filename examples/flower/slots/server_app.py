"""The parameter server: a scenario, a model, held-out samples, and a strategy over FedAvg."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedslot import HeldOut, Scenario, make_model, parse_overrides
from fedslot.data import load
from fedslot.deployment.flower import SlotAccess, to_arrays

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    scenario = Scenario.load(str(config["scenario"]), parse_overrides(str(config["overrides"]).split()))

    # The scenario's data set and network. Your own go here: Model(your_network), and two arrays x, y of samples that
    # no device has.
    data = load(scenario.data.dataset)
    model = make_model(scenario, data)
    held_out = HeldOut(scenario, model, data.x_test, data.y_test)

    strategy = SlotAccess(
        scenario=scenario,
        model=model,
        held_out=held_out,
        deadline=float(config["deadline"]),
        wait=float(config["wait"]),
        out=str(config["out"]),
        resume=bool(config["resume"]),
        seeded=bool(config["seeded"]),
        keyed=bool(config["keyed"]),
    )
    strategy.start(grid, to_arrays(model, model.initial))
