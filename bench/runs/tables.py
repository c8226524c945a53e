#!/usr/bin/env python3
"""Logistic regression in one process from CSV and from Parquet with the same rows, beside the reads of polars and pyarrow.

    cargo build --release -p gannet-cli --bin gannet
    python -m venv CACHE/tables && CACHE/tables/bin/pip install pyarrow polars
    CACHE/tables/bin/python bench/runs/tables.py CACHE/tables-data [--gannet FILE] [--copies 6] [--rounds 5] [--threads 2]

It writes the shipped flights, several times one after the other, as CSV and as Parquet (row groups of 128 Ki rows; snappy
and zstd). Each round runs all programs once, in turn. A read is one call in a process of its own, of the same columns;
the time and CPU of imports are not in it. It prints medians, with the lowest and the highest.
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "hour", "month", "weekday", "date"]
READ = """
import json, resource, sys, time
library, path, columns = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
if library == "polars":
    import polars
    read = polars.read_csv if path.endswith(".csv") else polars.read_parquet
    work = lambda: read(path, columns=columns)
elif path.endswith(".csv"):
    from pyarrow import csv
    work = lambda: csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=columns))
else:
    import pyarrow.parquet
    work = lambda: pyarrow.parquet.read_table(path, columns=columns)
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
start, before = time.perf_counter(), cpu()
table = work()
print(json.dumps({"seconds": time.perf_counter() - start, "cpu": cpu() - before, "rows": len(table)}))
"""


def make(folder, copies):
    """The files, by their names in the table."""
    import pyarrow.csv
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    text = folder / f"flights-{copies}.csv"
    if not text.exists():
        header, rows = gzip.open(ROOT / "data" / "flights.csv.gz").read().split(b"\n", 1)
        text.write_bytes(header + b"\n" + rows * copies)
    files = {"CSV": text}
    table = None
    for packing in ("snappy", "zstd"):
        path = folder / f"flights-{copies}-{packing}.parquet"
        files[f"Parquet, {packing}"] = path
        if not path.exists():
            table = table or pyarrow.csv.read_csv(text)
            pyarrow.parquet.write_table(table, path, compression=packing, row_group_size=128 * 1024)
    return files


def train(gannet, path, threads):
    command = [gannet, "train", path, "--label", "label", "--categorical", ",".join(COLUMNS), "--json", "--threads", threads]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command}: {status}")
    report = json.loads(out)
    seconds, cpu = report["seconds"], used.ru_utime + used.ru_stime
    return {"seconds": seconds, "cpu": cpu, "rows": report["examples"], "loss": report["logloss"]}


def read(library, path):
    command = [sys.executable, "-c", READ, library, str(path), ",".join(["label", *COLUMNS])]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gannet", type=Path, default=ROOT / "target" / "release" / "gannet")
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2", help="how many threads gannet trains with; one or several numbers")
    args = parser.parse_args()
    files = make(args.folder, args.copies)
    runs = {}
    for name, path in files.items():
        for threads in args.threads.split(","):
            what = f"`gannet train --threads {threads}`"
            runs[what, name] = lambda path=path, threads=threads: train(args.gannet, path, threads)
        for library in ("polars", "pyarrow"):
            runs[f"{library} reads", name] = lambda path=path, library=library: read(library, path)
    found = {key: [] for key in runs}
    for number in range(args.rounds):
        for key, run in runs.items():
            found[key].append(run())
            print(number, *key, found[key][-1], file=sys.stderr)
    losses = {run["loss"] for results in found.values() for run in results if "loss" in run}
    if len(losses) > 2 or len({run["rows"] for results in found.values() for run in results}) > 1:
        sys.exit(f"not the same rows: {losses}")

    def shown(values, form):
        middle, low, high = (form.format(of(values)) for of in (statistics.median, min, max))
        return f"{middle} ({low}-{high})"

    print("program\tfile\tMB\texamples/s\tCPU \u00b5s an example")
    for what in dict.fromkeys(key[0] for key in runs):
        for name, path in files.items():
            of = found[what, name]
            speed = shown([run["rows"] / run["seconds"] / 1e6 for run in of], "{:.2f}")
            cpu = shown([run["cpu"] / run["rows"] * 1e6 for run in of], "{:.3f}")
            print(f"{what}\t{name}\t{path.stat().st_size / 1e6:.0f}\t{speed} million\t{cpu}")


if __name__ == "__main__":
    main()
