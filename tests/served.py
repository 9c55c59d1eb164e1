"""An explorer in a process of its own, for the tests, with the requests that they send and what it uses."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

CHEAP = {"kind": "explore", "activations": ["1 + x"], "tokens": "1", "alpha": "4:6:5", "bayes": False, "suite": False}
LONG = {"kind": "explore", "activations": ["sigmoid"], "tokens": "6", "alpha": "1:10", "bayes": False}
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A running explorer."""

    def __init__(self, process, port):
        self.process, self.port = process, port
        self.address = f"http://127.0.0.1:{port}"

    def request(self, method, path, body=None, headers=None, host=None):
        """Status and body of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Host": host or f"127.0.0.1:{self.port}"}
        sent |= {"Content-Type": "application/json"} if data is not None else {}
        try:
            connection.request(method, path, data, sent | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def submit(self, body):
        status, answer = self.request("POST", "/api/jobs", body)
        assert status == 202, answer
        return json.loads(answer)["job"]

    def events(self, key, until=None, headers=None):
        """The events of a job as (name, content), up to the first of a name."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", f"/api/jobs/{key}/events", headers=headers or {})
        found, name = [], None
        try:
            answer = connection.getresponse()
            assert answer.status == 200
            for line in answer:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    found.append((name, json.loads(text[6:])))
                    if name == until:
                        break
        finally:
            connection.close()
        return found

    def family(self):
        """The processes that the server started, and theirs."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            parents[int(path.parent.name)] = int(fields[1])
        found = {self.process.pid}
        while more := {p for p, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def seconds(self):
        """Processor time of all processes that the server started and that are there."""
        total = 0.0
        for pid in self.family():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def megabytes(self):
        """Memory of the server itself."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


@contextmanager
def serving(*options):
    """An explorer on a free port; ended at the end, with nothing left behind."""
    command = [sys.executable, "-m", "replicode", "serve", "--port", "0", "--json", "--no-warm", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        server = Server(process, json.loads(process.stdout.readline())["port"])
        deadline = time.monotonic() + 30.0
        while True:
            try:
                assert server.request("GET", "/")[0] == 200
                break
            except ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
