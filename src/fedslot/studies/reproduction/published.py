"""The numbers of the paper's Figures 2, 5 and 6, from its source (which does not have those of Fig. 3)."""

from __future__ import annotations

from importlib import resources

import pandas as pd


def published(figure: str) -> pd.DataFrame:
    """Return the data of a figure, one column per curve, indexed by the values of the x-axis.

    >>> float(published("fig2").loc[199, "FedAvg (20)"])
    0.8752
    """
    with resources.as_file(resources.files(__package__).joinpath("published", f"{figure}.csv")) as file:
        return pd.read_csv(file).set_index(INDEX[figure])


INDEX = {"fig2": "round", "fig5": "axis_label", "fig6": "target_accuracy"}
