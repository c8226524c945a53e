"""gannet.Dataset of a relation of DuckDB gives the examples of the same table as a CSV file, in every pass."""

import duckdb
import gannet
import numpy as np

QUERY = """
select (i % 3 = 0)::int as label, 'c' || (i % 7) as color, i % 5 as shop, (i / 8.0)::float as price
from range(5000) rows(i) order by i
"""


def examples(dataset):
    batches = list(dataset.batches(700))
    return [
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("labels", "keys", "values")
    ]


def test_a_relation_is_its_csv_file(tmp_path):
    connection = duckdb.connect()
    relation = connection.sql(QUERY)
    file = tmp_path / "rows.csv"
    relation.write_csv(str(file))
    columns = {"label": "label", "categorical": ["color", "shop"], "numeric": ["price"]}
    wanted = examples(gannet.Dataset(str(file), **columns))
    dataset = gannet.Dataset(relation, **columns)
    for _ in range(2):
        got = examples(dataset)
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert len(wanted[0]) == 5000


def test_a_pass_that_is_left_does_not_spoil_the_next_one(tmp_path):
    connection = duckdb.connect()
    dataset = gannet.Dataset(connection.sql(QUERY), label="label", categorical=["color", "shop"])
    next(iter(dataset.batches(10)))
    assert len(examples(dataset)[0]) == 5000
