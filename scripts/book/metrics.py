"""The page of metrics: what the processes of a small job report on `--metrics`. pages.py calls it."""

import contextlib
import re
import subprocess
import tempfile
import time
import urllib.request

UNITS = {"seconds": "seconds", "bytes": "bytes", "rows": "rows"}
# Labels with a value for each table, thread, and so on.
OPEN = {"table", "thread", "version", "role", "steps", "le", "model"}


@contextlib.contextmanager
def running(gannet, *words):
    """A process with metrics. Gives it and the address of its page."""
    command = [gannet, *map(str, words), "--metrics", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            raise SystemExit(f"{' '.join(command)}: {line}{process.stderr.read()}")
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def serving(gannet, model):
    """The page of a process that serves this model, on the port of its predictions."""
    command = [gannet, "serve", "--model", model, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process.stdout.readline().split()[-1] + "/metrics"
    finally:
        process.kill()
        process.communicate()


def page_with(address, wanted):
    """The page, once it has this metric."""
    for _ in range(1200):
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        if f"\n{wanted}" in text:
            return text
        time.sleep(0.1)
    raise SystemExit(f"{address} never had {wanted}")


def pages(gannet, data):
    """The pages of a server, of a worker, of trainings in one process of both kinds of models, and of `serve`."""
    train = ["train", data, "--label", "label", "--epochs", 10000, "--json"]
    with contextlib.ExitStack() as all_of:
        server, of_server = all_of.enter_context(running(gannet, "server", "--listen", "127.0.0.1:0", "--threads", 1))
        listens = server.stdout.readline().split()[4]
        job = ["--ps-hosts", listens, "--worker-hosts", "127.0.0.1:9", "--job-name", "worker", "--tasks", "off"]
        _, of_worker = all_of.enter_context(running(gannet, *train, *job))
        _, alone = all_of.enter_context(running(gannet, *train, "--l1", 0.1))
        _, model = all_of.enter_context(running(gannet, *train, "--model", "linear"))
        yield page_with(of_worker, "gannet_train_auc ")
        yield page_with(alone, "gannet_train_auc ")
        yield page_with(model, "gannet_train_loss ")
        yield page_with(of_server, "gannet_table_rows{")
        folder = all_of.enter_context(tempfile.TemporaryDirectory())
        subprocess.run([gannet, "train", data, "--out", f"{folder}/model"], check=True, capture_output=True)
        yield page_with(all_of.enter_context(serving(gannet, f"{folder}/model")), "gannet_serve_connections ")


def table(gannet, data):
    """The page, in markdown."""
    found = {}
    for text in pages(gannet, data):
        for name, words, kind in re.findall(r"^# HELP (\w+) (.*)\n# TYPE \w+ (\w+)$", text, re.M):
            found.setdefault(name, (kind, words.replace("\\\\", "\\"), {}))
        for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.M):
            name = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
                values = found[name][2].setdefault(label, [])
                if value not in values:
                    values.append(value)
    out = ["# List of metrics", "", "What processes report; [Metrics and logs](metrics.md) says how.", ""]
    out += ["| metric | type | unit | meaning |", "|---|---|---|---|"]
    for name, (kind, words, labels) in sorted(found.items()):
        labels.pop("le", None)
        unit = next((unit for part, unit in UNITS.items() if f"_{part}" in name), "")
        # Words may say what each value means.
        told = {label for label, values in labels.items() if all(value in words for value in values)}
        listed = [f"{label}: {', '.join(labels[label])}" for label in labels if label not in OPEN | told]
        names = "{" + ",".join(labels) + "}" if labels else ""
        said = " ".join([words, *(f"{part}." for part in listed)]).replace("|", "\\|")
        out.append(f"| `{name}{names}` | {kind} | {unit} | {said} |")
    return "\n".join(out) + "\n"
