from hypothesis import given
from hypothesis import strategies as st

from fedslot.views.text_plot import ROWS, text_plot


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=2, max_size=50),
    st.integers(12, 120),
)
def test_every_column_has_one_point_and_lines_fit(steps: list[tuple[int, float]], width: int) -> None:
    x = [sum(step for step, _ in steps[: i + 1]) for i in range(len(steps))]
    y = [value for _, value in steps]
    title, *lines, axis = text_plot(x, y, width, "title").split("\n")
    assert title == "title"
    assert len(lines) == ROWS
    assert max(map(len, lines)) <= width
    curves = [line.partition("|")[2] for line in lines]
    columns = max(map(len, curves))
    for column in range(columns):
        assert sum(curve[column : column + 1] == "*" for curve in curves) == 1
    assert f"{max(y):.3f}" in lines[0]
    assert axis.split() == [f"{x[0]:g}", f"{x[-1]:g}"]


def test_the_curve_rises_from_left_to_right() -> None:
    lines = text_plot([1, 2, 3], [0.1, 0.5, 0.9], 40, "").split("\n")[1:-1]
    first = [line.partition("|")[2].find("*") for line in lines if "*" in line]
    assert first == sorted(first, reverse=True)
