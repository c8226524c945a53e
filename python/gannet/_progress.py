# tqdm may not be installed where types are checked.
# mypy: disable-error-code="import-untyped,import-not-found,unused-ignore"
"""Progress bars of long calls: in notebooks, and where a program asks for them."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Callable, Optional

_shown: Optional[bool] = None


def show_progress(show: Optional[bool]) -> None:
    """Chooses whether long calls, such as `fit` of an estimator, show a progress bar.

    Args:
        show: `None`, the default: in notebooks. `True`: everywhere; a bar in a terminal goes to standard error. `False`:
            nowhere. A bar needs the package tqdm. Without it `None` shows none.

    Raises:
        ImportError: `show` is `True`, and tqdm is not installed.
    """
    global _shown
    if show:
        import tqdm.auto  # noqa: F401
    _shown = show


def _is_notebook() -> bool:
    # A notebook has loaded IPython. Its shell there has a connection to the browser.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Bar:
    """The progress of one call, in a `with` statement. It shows nothing where no bar is wanted.

    Args:
        what: The call.
        total: How much there is to do, in all its parts.
        unit: What is counted.
    """

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._bar: Any = None
        self._begin = 0
        if _shown is False or _shown is None and not _is_notebook():
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        # A call that ends at once shows no bar.
        self._bar = tqdm(desc=what, total=total, unit=f" {unit}", unit_scale=True, delay=0.5, leave=False)

    @property
    def update(self) -> Optional[Callable[[int], None]]:
        """What the native module calls with the progress of this part of the call. `None`: there is no bar."""
        return None if self._bar is None else self._to

    def _to(self, done: int) -> None:
        self._bar.update(self._begin + done - self._bar.n)

    def part(self, size: int) -> None:
        """One part has ended, of this size."""
        if self._bar is not None:
            self._to(size)
            self._begin += size

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._bar is not None:
            self._bar.close()
