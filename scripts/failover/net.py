"""Machines for scripts/failover/rounds.py: network namespaces behind a router, whose links can be cut one way, and a
cluster of etcd on three of them. Needs root, iproute2 and util-linux. Standard library only.

The script runs itself again in namespaces of its own for the network, mounts and processes (`isolated`). Everything is
made in there. So nothing that it makes can be seen from outside or has the name of something outside, and the kernel
removes all of it when the script ends, however it ends.

    ps0 (10.77.1.2) --veth-- 10.77.1.1 \\
    ps1 (10.77.2.2) --veth-- 10.77.2.1 -- router: the namespace of the script
    ...
"""

import json
import os
import subprocess
import sys
import urllib.request

PORT, METRICS_PORT, ETCD_PORTS = 7700, 9100, (2379, 2380)
INSIDE = "FAILOVER_ROUNDS_INSIDE"


def run(command):
    """Runs a command of the system, which must succeed."""
    done = subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"`{command}` failed: {done.stdout.strip()}")


def isolated():
    """Whether the script is in namespaces of its own. If not, runs it there, and ends with its exit code."""
    if os.environ.get(INSIDE):
        os.makedirs("/run/netns", exist_ok=True)
        # The names of namespaces are files in this folder.
        run("mount -t tmpfs failover /run/netns")
        run("ip link set lo up")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
            forward.write("1")
        # What the script itself sends is not cut.
        run("ip rule add iif lo lookup main priority 1")
        return
    if os.geteuid() != 0:
        sys.exit("network namespaces need root: run this as root")
    # If this process dies, so does `unshare`, and with it all processes in the namespace.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    command += ["--mount-proc", sys.executable, *sys.argv]
    sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}).returncode)


class Machines:
    """A namespace for each name, with an address of its own."""

    flags = ["--insecure", "--transport", "tcp"]

    def __init__(self, names):
        self.names, self.rules = list(names), []
        for number, name in enumerate(self.names, 1):
            run(f"ip netns add {name}")
            run(f"ip link add {name} type veth peer name eth0 netns {name}")
            run(f"ip addr add 10.77.{number}.1/24 dev {name}")
            run(f"ip link set {name} up")
            run(f"ip -n {name} link set lo up")
            run(f"ip -n {name} addr add {self.ip(name)}/24 dev eth0")
            run(f"ip -n {name} link set eth0 up")
            run(f"ip -n {name} route add default via 10.77.{number}.1")

    def ip(self, name):
        return f"10.77.{self.names.index(name) + 1}.2"

    def addr(self, name):
        return f"{self.ip(name)}:{PORT}"

    def metrics(self, name):
        return ["--metrics", f"{self.ip(name)}:{METRICS_PORT}", "--metrics-public"]

    def command(self, name, args):
        return ["ip", "netns", "exec", name, *map(str, args)]

    def cut(self, sender, receiver):
        """The router drops what one machine sends to another, without a word. None: any machine."""
        of = (f" iif {sender}" if sender else "") + (f" to {self.ip(receiver)}" if receiver else "")
        run(f"ip rule add{of} priority 2 blackhole")
        self.rules.append(of)

    def mend(self):
        """All links are whole again."""
        while self.rules:
            run(f"ip rule del{self.rules.pop()} priority 2 blackhole")

    def remove(self):
        """Removes the machines. Their processes have ended."""
        self.mend()
        for name in self.names:
            run(f"ip link del {name}")
            run(f"ip netns del {name}")


class Etcd:
    """A cluster of etcd, with a member on each of these machines."""

    def __init__(self, machines, folder, names):
        self.machines, self.folder, self.names = machines, folder, names
        self.members = {name: self.start(name) for name in names}

    def url(self, name, port):
        return f"http://{self.machines.ip(name)}:{port}"

    def start(self, name):
        of_clients, of_members = (self.url(name, port) for port in ETCD_PORTS)
        every = ",".join(f"{other}={self.url(other, ETCD_PORTS[1])}" for other in self.names)
        args = ["etcd", "--name", name, "--data-dir", self.folder / f"{name}.data", "--initial-cluster", every]
        args += ["--listen-client-urls", of_clients, "--advertise-client-urls", of_clients]
        args += ["--listen-peer-urls", of_members, "--initial-advertise-peer-urls", of_members]
        with open(self.folder / f"{name}.log", "a") as log:
            return subprocess.Popen(self.machines.command(name, args), stdout=log, stderr=log)

    def coordinator(self):
        """The value of --coordinator."""
        members = (f"{self.machines.ip(name)}:{ETCD_PORTS[0]}" for name in self.names)
        return "etcd://" + ",".join(members)

    def leader(self):
        """The member that leads, as it says itself. None: none says so."""
        for name in self.names:
            request = urllib.request.Request(f"{self.url(name, ETCD_PORTS[0])}/v3/maintenance/status", b"{}")
            try:
                status = json.loads(urllib.request.urlopen(request, timeout=2).read())
            except OSError:
                continue
            if "leader" in status and status["leader"] == status["header"]["member_id"]:
                return name
        return None

    def kill(self, name):
        self.members[name].kill()
        self.members[name].wait()

    def end(self):
        for name in self.names:
            self.kill(name)
