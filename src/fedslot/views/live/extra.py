"""Whether Bokeh is there, without importing it."""

from __future__ import annotations

from importlib.util import find_spec

from fedslot.support.errors import RefusedError

HOW_TO_INSTALL = "pip install 'fedslot[live]'"


def has_bokeh() -> bool:
    """Return whether Bokeh can be imported."""
    try:
        return find_spec("bokeh") is not None
    except ValueError:  # it was put aside: sys.modules["bokeh"] is None
        return False


def require_bokeh(what: str) -> None:
    """Refuse something that needs Bokeh where it is not installed."""
    if not has_bokeh():
        raise RefusedError(f"{what} needs Bokeh; install it with: {HOW_TO_INSTALL}")
