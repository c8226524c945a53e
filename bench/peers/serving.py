"""Logistic regression behind FastAPI, as one would write it in Python for speed: the weights are in dicts by the texts of
each column, orjson reads a request, and no model of pydantic checks it. bench/runs/serving.py starts it.

    GANNET_WEIGHTS=weights.json uvicorn serving:app --app-dir bench/peers --no-access-log

The file is what `gannet inspect --json` prints.
"""
import json
import math
import os

import orjson
from fastapi import FastAPI, Request, Response

with open(os.environ["GANNET_WEIGHTS"]) as file:
    found = json.load(file)
intercept = found["intercept"]
columns = {}
for feature in found["features"]:
    column, value = feature["name"].split("=", 1)
    columns.setdefault(column, {})[value] = feature["weight"]
by_column = [(column, weights.get) for column, weights in columns.items()]
app = FastAPI()


@app.post("/v1/predict")
async def predict(request: Request):
    rows = orjson.loads(await request.body())
    if isinstance(rows, dict):
        rows = [rows]
    lines = []
    for row in rows:
        margin = intercept
        for column, weight in by_column:
            margin += weight(row[column], 0.0)
        lines.append("%.6f\n" % (1 / (1 + math.exp(-margin))))
    return Response("".join(lines), media_type="text/plain")
