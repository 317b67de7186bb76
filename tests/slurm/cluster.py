"""A real SLURM on this machine: one controller, two nodes on two ports, a fake GPU on each.

No systemd, no cgroups, no accounting. Needs root, and the programs of slurm-wlm and munge. Every
process is started here and stopped by its id; all files lie in one folder.

    python -m tests.slurm.cluster       install what is missing (apt), print what cannot be had
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.apt import install

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun", "munged")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
NODES = ("attn0", "attn1")
CPUS, MEMORY_MB = 2, 4000

CONF = Path(__file__).with_name("slurm.conf").read_text()
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
    "RealMemory={memory} Gres=gpu:1 State=UNKNOWN"
)


def lacking():
    """Return why a cluster cannot be had here; empty if it can."""
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root here, and this is another user"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


@contextmanager
def cluster(folder):
    """Run a cluster in `folder`; yield the environment that reaches it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    environment |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
    _write_configuration(folder)
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    folder.chmod(0o755)
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid"}
    files |= {"log-file": "munged.log", "seed-file": "munged.seed"}
    options = [f"--{name}={folder / file}" for name, file in files.items()]
    daemons = [["munged", "--foreground", "--force", *options], ["slurmctld", "-D"]]
    daemons += [["slurmd", "-D", "-N", node] for node in NODES]
    started = []
    try:
        for command in daemons:
            with (folder / "daemons.log").open("ab") as log:
                kept = {"env": environment, "stdout": log, "stderr": log}
                started.append(subprocess.Popen(command, start_new_session=True, **kept))
            _wait(lambda: (folder / "munge.socket").exists(), 10, "munged", folder)
        asked = ["sinfo", "-h", "-N", "-o", "%N %T"]
        idle = lambda: _output(asked, environment).split().count("idle") == len(NODES)  # noqa: E731
        _wait(idle, 60, "the nodes", folder)
        yield environment
    finally:
        empty_queue(environment)
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        _kill_strays(folder)


def _write_configuration(folder):
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    # ports on which nobody listens now: two clusters may run on one machine
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(1 + len(NODES))]
    controller_port, *node_ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    nodes = [
        NODE.format(name=name, host=host, port=port, cpus=CPUS, memory=MEMORY_MB)
        for name, port in zip(NODES, node_ports, strict=True)
    ]
    texts = {"nodes": "\n".join(nodes), "names": ",".join(NODES)}
    conf = CONF.format(host=host, port=controller_port, folder=folder, **texts)
    (folder / "slurm.conf").write_text(conf)
    # any device that exists will do: SLURM counts it and tells the job its number
    gres = [f"NodeName={name} Name=gpu File=/dev/null\n" for name in NODES]
    (folder / "gres.conf").write_text("".join(gres))


def _wait(holds, seconds, what, folder):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            logs = [path.read_text(errors="replace")[-1500:] for path in folder.glob("*.log")]
            raise TimeoutError(f"{what} did not come up within {seconds:g} s", *logs)
        time.sleep(0.2)


def empty_queue(environment):
    """Cancel what is left and give it time to end."""
    subprocess.run(["scancel", "--user=root"], env=environment, timeout=20, check=False)
    with suppress(TimeoutError):
        empty = lambda: not _output(["squeue", "--noheader"], environment).strip()  # noqa: E731
        _wait(empty, 15, "an empty queue", Path("/nowhere"))


def _output(command, environment):
    kept = {"env": environment, "capture_output": True, "text": True, "timeout": 20}
    return subprocess.run(command, check=False, **kept).stdout


def _kill_strays(folder):
    """Kill the processes of this cluster that outlived its daemons."""
    mark = f"SLURM_CONF={folder}/".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes() and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)


if __name__ == "__main__":
    refused = install("slurm-wlm", "munge") if lacking() else ""
    reason = lacking() and f"{lacking()}. {refused}"
    sys.stdout.write(f"SLURM tests are skipped: {reason}\n" if reason else "SLURM is installed\n")
