#!/usr/bin/env python3
"""Losses on 27 public tables of binary labels, held out, beside scikit-learn's logistic regression with the best C.

    python -m venv CACHE/v && CACHE/v/bin/pip install pandas scikit-learn
    CACHE/v/bin/python bench/runs/public_tables.py CACHE [--gannet FILE] -- '' '--model fm' '--optimizer lbfgs'

It needs apt, for the packages of R that have the tables, and Rscript (r-base-core). 80% of the rows train, at random or
in order of time. Each line of flags trains each table once, with --label and no other flag. scikit-learn gets strings
as one-hot columns, and numbers standardised, as they are and as logarithms: the better of both counts.
"""
import argparse
import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

PACKAGES = "dslabs lme4 mlbench kernlab ggplot2 aer modeldata cardata mlmrev".split()
DUMP = """
for (pkg in list.files("x/usr/lib/R/site-library")) {
  data <- file.path("x/usr/lib/R/site-library", pkg, "data"); env <- new.env()
  if (file.exists(file.path(data, "Rdata.rdb"))) lazyLoad(file.path(data, "Rdata"), envir = env)
  for (f in list.files(data, pattern = "\\\\.(rda|RData)$", full.names = TRUE)) try(load(f, envir = env), silent = TRUE)
  for (n in ls(env)) {
    x <- try(get(n, envir = env), silent = TRUE)
    if (is.data.frame(x) && nrow(x) >= 2000)
      try(write.csv(as.data.frame(x), paste0("csv/", pkg, "-", n, ".csv"), row.names = FALSE), silent = TRUE)
  }
}
"""
# Of each table: the file, the label by its columns, the columns that say it, and that of the time.
TABLES = {
    "insteval": ("lme4-InstEval", lambda d: d.y >= 4, ["y"], None),
    "movielens": ("dslabs-movielens", lambda d: d.rating >= 4, ["rating", "title", "timestamp"], "timestamp"),
    "hmda": ("AER-HMDA", lambda d: d.deny == "yes", ["deny"], None),
    "smokeban": ("AER-SmokeBan", lambda d: d.smoker == "yes", ["smoker"], None),
    "healthins": ("AER-HealthInsurance", lambda d: d.insurance == "yes", ["insurance"], None),
    "fertility": ("AER-Fertility", lambda d: d.morekids == "yes", ["morekids"], None),
    "nmes": ("AER-NMES1988", lambda d: d.visits >= 6, ["visits"], None),
    "doctor": ("AER-DoctorVisits", lambda d: d.visits > 0, ["visits"], None),
    "cps": ("AER-CPS1988", lambda d: d.wage > d.wage.median(), ["wage"], None),
    "lending": ("modeldata-lending_club", lambda d: d.Class == "bad", ["Class"], None),
    "mpls": ("carData-MplsStops", lambda d: d.personSearch == "YES",
             ["personSearch", "citationIssued", "vehicleSearch", "idNum"], "date"),
    "stackoverflow": ("modeldata-stackoverflow", lambda d: d.Remote == "Remote", ["Remote"], None),
    "diamonds": ("ggplot2-diamonds", lambda d: d.price > d.price.median(), ["price"], None),
    "credit": ("modeldata-credit_data", lambda d: d.Status == "bad", ["Status"], None),
    "mlcchurn": ("modeldata-mlc_churn", lambda d: d.churn == "yes", ["churn"], None),
    "wachurn": ("modeldata-wa_churn", lambda d: d.churn == "Yes", ["churn"], None),
    "arrests": ("carData-Arrests", lambda d: d.released == "No", ["released"], None),
    "spam": ("kernlab-spam", lambda d: d.type == "spam", ["type"], None),
    "caravan": ("kernlab-ticdata", lambda d: d.CARAVAN == "insurance", ["CARAVAN"], None),
    "income": ("kernlab-income", lambda d: d.INCOME.astype(str).str.contains("30.000-40|40.000-|50.000-75|75.000-"),
               ["INCOME"], None),
    "shuttle": ("mlbench-Shuttle", lambda d: d.Class != "Rad.Flow", ["Class"], None),
    "letter": ("mlbench-LetterRecognition", lambda d: d.lettr.isin(list("AEIOU")), ["lettr"], None),
    "wvs": ("carData-WVS", lambda d: d.poverty == "Too Little", ["poverty"], None),
    "vocab": ("carData-Vocab", lambda d: d.vocabulary >= 7, ["vocabulary"], None),
    "verbagg": ("lme4-VerbAgg", lambda d: d.r2 == "Y", ["r2", "resp"], None),
    "college": ("AER-CollegeDistance", lambda d: d.education > 12, ["education"], None),
    "grants": ("modeldata-grants_other", lambda d: d["class"] == "successful", ["class"], None),
}
# Whole numbers that are names.
IDS = {"insteval": ["s", "d", "studage", "lectage", "service", "dept"], "movielens": ["userId", "movieId", "year"]}


def fetch(folder):
    (folder / "csv").mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", f"r-cran-{package}"], cwd=folder, check=True, capture_output=True)
    for deb in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb.name, "x"], cwd=folder, check=True)
    subprocess.run(["Rscript", "-e", DUMP], cwd=folder, check=True, capture_output=True)


def split(folder, name):
    """The paths of the two parts of a table."""
    import numpy
    import pandas

    parts = [folder / f"{name}.{part}.csv" for part in ("train", "test")]
    if not all(part.exists() for part in parts):
        file, label, drop, time = TABLES[name]
        table = pandas.read_csv(folder / "csv" / f"{file}.csv", low_memory=False)
        table = table.dropna(subset=["personSearch"]) if name == "mpls" else table
        order = numpy.argsort(table[time], kind="stable") if time else numpy.random.RandomState(7).permutation(len(table))
        if name == "mpls":
            table["date"] = table.date.str[:10]
        label = label(table).astype(int)
        table = table.drop(columns=drop)
        table.insert(0, "label", label)
        table, cut = table.iloc[order], int(len(table) * 0.8)
        table[:cut].to_csv(parts[0], index=False)
        table[cut:].to_csv(parts[1], index=False)
    return parts


def peer(name, parts):
    """scikit-learn's best loss."""
    import numpy
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    train, test = (pandas.read_csv(part) for part in parts)
    y, wanted = train.pop("label"), test.pop("label")
    numbers = [c for c in train if pandas.api.types.is_numeric_dtype(train[c]) and c not in IDS.get(name, [])]
    texts = [c for c in train if c not in numbers]
    for part in (train, test):
        part[texts] = part[texts].astype(str)
    losses = []
    for squeeze in (lambda x: x, lambda x: numpy.sign(x) * numpy.log1p(numpy.abs(x))):
        scale = make_pipeline(
            SimpleImputer(strategy="median", keep_empty_features=True), FunctionTransformer(squeeze), StandardScaler()
        )
        columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), texts), (scale, numbers))
        x, x_test = columns.fit_transform(train), columns.transform(test)
        for c in (0.01, 0.1, 1, 10):
            fitted = LogisticRegression(C=c, max_iter=300).fit(x, y)
            losses.append(log_loss(wanted, fitted.predict_proba(x_test)[:, 1], labels=[0, 1]))
    return min(losses)


def loss(gannet, parts, flags, more=()):
    train, test = map(str, parts)
    command = [gannet, "train", train, "--test", test, "--label", "label", "--json", *flags.split(), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout)["test_logloss"] if done.returncode == 0 else math.nan


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gannet", default="target/release/gannet")
    parser.add_argument("flags", nargs="+", help="the flags of each training")
    args = parser.parse_args()
    if not (args.folder / "csv").exists():
        fetch(args.folder)
    ratios = [[] for _ in args.flags]
    print("table", "scikit-learn", *[flags or "(none)" for flags in args.flags], sep="\t")
    for name in TABLES:
        parts = split(args.folder, name)
        best, losses = peer(name, parts), [loss(args.gannet, parts, flags) for flags in args.flags]
        print(name, *[f"{x:.4f}" for x in (best, *losses)], sep="\t", flush=True)
        for ratio, own in zip(ratios, losses):
            ratio.append(math.log(own / best))
    means = [math.exp(sum(ratio) / len(ratio)) for ratio in ratios]
    print("geometric mean of the ratios", "1", *[f"{mean:.4f}" for mean in means], sep="\t")


if __name__ == "__main__":
    sys.exit(main())
