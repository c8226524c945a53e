# scikit-learn and scipy have no types.
# mypy: disable-error-code="import-untyped"
"""Normalization of features for the estimators, as ``gannet train --normalize`` has it: how large values are, and what
the weights of normalized values are for values as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

# A normalized value is at most so far from 0.
BOUND = 16.0
# The most that the average squared length of an example may be.
LENGTH = 64.0


class Sizes:
    """The center and the factor of each feature: a value ``x`` becomes ``(x - center) * factor``."""

    def __init__(self, features: int) -> None:
        self.known = np.zeros(features, bool)
        self.center = np.zeros(features)
        self.factor = np.ones(features)

    def look(self, X: Any, dense: bool) -> None:
        """Fixes the sizes of features that occur for the first time. ``X`` is a matrix in rows; ``dense``: a value that
        it lacks is a 0, in a feature that all examples have."""
        count, features = X.shape
        first = not self.known.any()
        if (X.data == 1).all():
            # One-hot data stays as it is.
            self.known[X.indices] = True
            return
        columns = sparse.csc_matrix(X)
        columns.eliminate_zeros()
        found = np.diff(columns.indptr)
        new = np.flatnonzero(~self.known & (found > 0))
        if not new.size:
            return
        sizes, begins = np.abs(columns.data), columns.indptr[:-1][found > 0]
        least, most = np.zeros(features), np.zeros(features)
        least[found > 0] = np.minimum.reduceat(sizes, begins)
        most[found > 0] = np.maximum.reduceat(sizes, begins)
        differ = least < most
        at = np.repeat(np.arange(features), found)
        # A feature that an example has twice may not be in another one.
        everywhere = differ & first & (dense | ((found == count) & X.has_canonical_format))
        center = np.where(everywhere, np.bincount(at, columns.data, features) / count, 0.0)
        squares = np.bincount(at, (columns.data - center[at]) ** 2, features)
        # The zeros of features that all examples have are values, too.
        squares += np.where(everywhere, (count - found) * center**2, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(differ, np.sqrt(squares / np.where(everywhere, count, found)), most)
            length = np.where(everywhere, count, found)[differ].sum() / count
            factor = np.where(differ, min(1.0, np.sqrt(LENGTH / max(length, 1.0))), 1.0) / size
        self.center[new] = center[new]
        self.factor[new] = np.where(np.isfinite(factor), factor, 1.0)[new]
        self.known[new] = True

    def of(self, X: Any) -> Any:
        """The normalized matrix in rows."""
        if not self.center.any() and (self.factor == 1).all() and (np.abs(X.data) <= BOUND).all():
            return X
        X = sparse.csr_matrix(X, copy=True)
        values = (X.data - self.center[X.indices]) * self.factor[X.indices]
        X.data = np.clip(values, -BOUND, BOUND)
        if not self.center.any():
            return X
        if not X.has_canonical_format:
            X.sum_duplicates()
        found = np.bincount(X.indices, minlength=X.shape[1])
        lacking = np.flatnonzero((self.center != 0) & (found < X.shape[0]))
        if lacking.size:
            X = X + self._zeros(X, lacking)
        return X

    def _zeros(self, X: Any, columns: Any) -> Any:
        """What the zeros of these columns become, which the matrix lacks."""
        there = X[:, columns]
        there.data = np.ones(len(there.data))
        rows, at = np.nonzero(there.toarray() == 0)
        of = np.clip(-self.center[columns] * self.factor[columns], -BOUND, BOUND)
        return sparse.csr_matrix((of[at], (rows, columns[at])), shape=X.shape)

    def weights_as_given(self, coef: Any, intercept: Any) -> tuple[Any, Any]:
        """Weights (problems, features) and intercepts for values as they are."""
        coef = coef * self.factor
        return coef, intercept - coef @ self.center

    def factors_as_given(self, coef: Any, intercept: Any, factors: Any) -> tuple[Any, Any, Any]:
        """The same with factors (problems, features, factors), of weights and intercepts for values as they are."""
        factors = factors * self.factor[:, np.newaxis]
        lengths = (factors * factors).sum(axis=2)
        sums = np.einsum("pfk,f->pk", factors, self.center)
        coef = coef - np.einsum("pfk,pk->pf", factors, sums) + lengths * self.center
        moved = 0.5 * ((sums * sums).sum(axis=1) - lengths @ (self.center * self.center))
        return coef, intercept + moved, factors
