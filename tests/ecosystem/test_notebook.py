"""A fit in a notebook shows a bar, and one that ends at once shows none."""

import nbclient
import nbformat
import pytest

DATA = """
import numpy as np
from scipy import sparse
from gannet.sklearn import FTRLClassifier
random = np.random.default_rng(1)
columns = random.integers(0, 5000, (100_000, 8))
X = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 8)), (100_000, 5000))
"""


@pytest.mark.parametrize("epochs, shown", [(100, True), (1, False)])
def test_a_notebook_shows_a_bar(tmp_path, epochs, shown):
    cells = [
        nbformat.v4.new_code_cell(DATA),
        nbformat.v4.new_code_cell(f"FTRLClassifier(epochs={epochs}).fit(X, columns[:, 0] % 2).n_iter_"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[1].outputs
    assert outputs[-1].data["text/plain"] == str(epochs)
    bars = [output for output in outputs[:-1] if "FTRLClassifier" in str(output)]
    assert bool(bars) == shown, outputs
