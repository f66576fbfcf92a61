import re
from pathlib import Path

import pytest
import torch

from fedslot import InputError
from fedslot.aggregation import AGGREGATIONS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_skeleton_of_an_aggregation_runs(updates, tmp_path, monkeypatch):
    """Norms 1, 5 and 3: the second step is clipped to 3/5 of itself."""
    page = (DOCS / "how-to" / "own-parts.md").read_text("utf-8")
    code = re.search(r"```python title=\"clipped.py\"\n(.*?)```", page, re.DOTALL)
    assert code is not None
    (tmp_path / "skeleton_of_an_aggregation.py").write_text(code.group(1))
    monkeypatch.syspath_prepend(tmp_path)
    aggregation = AGGREGATIONS.make("skeleton_of_an_aggregation:Clipped", {"memory": 0.75})
    aggregate = aggregation.apply(aggregation.init(torch.zeros(2), 3), updates([[1.0, 0.0], [3.0, 4.0], [0.0, 3.0]]))
    assert aggregate.broadcast.tolist() == pytest.approx([2.8 / 3, 5.4 / 3])
    assert aggregate.report.tolist() == pytest.approx([0.7 / 3, 1.35 / 3])
    with pytest.raises(InputError, match=r"aggregation\.options\.memory: 2\.0 is not allowed"):
        AGGREGATIONS.make("skeleton_of_an_aggregation:Clipped", {"memory": 2.0})


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_the_table_has_every_aggregation_with_its_defaults(name):
    page = (DOCS / "explanation" / "aggregation.md").read_text("utf-8")
    row = re.search(rf"^\| `{name}` \| (.*?)\|", page, re.MULTILINE)
    assert row is not None
    options = dict(re.findall(r"`(\w+): ([\d.]+)`", row.group(1)))
    assert {key: float(value) for key, value in options.items()} == vars(AGGREGATIONS.make(name, {}))
