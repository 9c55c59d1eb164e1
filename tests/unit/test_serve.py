"""The explorer over HTTP: jobs, events, files, cancelling, restarts, and requests that mean harm."""

import json
import socket
import time

import pytest
from click.testing import CliRunner
from served import CHEAP, LONG, serving

from replicode.cli import main
from replicode.serve.guard import MOST_BYTES
from replicode.serve.jobs import MOST_WAITING
from replicode.serve.requests import checked
from replicode.theory.errors import InputError

NESTED = "(" * 140 + "x" + ")" * 140
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server():
    with serving() as found:
        yield found


def test_a_job_tells_properties_and_equations_first_then_curves(server):
    events = server.events(server.submit(CHEAP))
    names = [name for name, _ in events]
    assert names[:3] == ["names", "properties", "equations"]
    assert names[-1] == "done" and names.count("chart") > 4 and "suite" not in names
    told = dict(events)
    assert told["names"]["bayes"] is CHEAP.get("bayes", True)
    assert "<math" in told["equations"]["html"] and "equivariant" in told["properties"]["html"]
    values = {row["at"] for row in told["chart"]["spec"]["data"]["values"]}
    assert {4.0, 6.0} <= values


def test_what_was_computed_outlives_the_server(server):
    server.events(server.submit(CHEAP))
    with serving() as other:
        key = other.submit(CHEAP)
        events = other.events(key)
        assert events[-1][0] == "done"
        again = other.events(key, headers={"Last-Event-ID": str(len(events) - 2)})
        assert again == events[-1:]
        used = other.seconds()
        assert dict(events)["chart"] == dict(server.events(server.submit(CHEAP)))["chart"]
    assert used < 8.0, "nothing but imports and reading the cache"


def test_files_are_those_of_the_verbs(server):
    from replicode.modules import module_source

    key = server.submit({**CHEAP, "kind": "module"})
    assert [name for name, _ in server.events(key)] == ["done"]
    status, body = server.request("GET", f"/api/jobs/{key}/file")
    assert status == 200 and body.decode() == module_source("1 + x", "spiked", "1")
    table = server.submit({**CHEAP, "kind": "csv"})
    server.events(table)
    assert server.request("GET", f"/api/jobs/{table}/file")[1].decode().splitlines()[0].startswith("activation,alpha")


def test_bad_text_is_explained_with_the_caret(server):
    ((name, told),) = server.events(server.submit({**CHEAP, "activations": ["exp(x"]}))
    assert name == "failed" and "^" in told["message"] and "exp(x" in told["message"]
    ((name, told),) = server.events(server.submit({**CHEAP, "activations": [SCRIPT]}))
    assert name == "failed" and SCRIPT in told["message"]


def test_a_cancelled_job_stops_within_a_second(server):
    key = server.submit(LONG)
    server.events(key, until="names")
    busy = len(server.family())
    assert server.request("DELETE", f"/api/jobs/{key}")[0] == 204
    time.sleep(1.0)
    assert len(server.family()) < busy
    before = server.seconds()
    time.sleep(0.5)
    assert server.seconds() - before < 0.05
    assert server.events(key)[-1][0] == "cancelled"


def test_hostile_requests_leave_it_serving(server):
    before = server.megabytes()
    own = {"Origin": server.address}
    refused = [
        *(server.request("GET", path, host="evil.example")[0] for path in ("/", "/api/registered")),
        *(server.request("POST", "/api/jobs", CHEAP, {"Origin": o})[0] for o in ("http://evil.example", "null", "")),
        server.request("POST", "/api/jobs", CHEAP, {"Sec-Fetch-Site": "cross-site"})[0],
        server.request("POST", "/api/jobs", CHEAP, {"Content-Type": "text/plain"})[0],
        server.request("POST", "/api/jobs", b"[" * 60000, own)[0],
        server.request("POST", "/api/jobs", b"\xff\xfe{", own)[0],
        server.request("POST", "/api/jobs", {**CHEAP, "activations": ["x" * 400]}, own)[0],
        server.request("POST", "/api/jobs", {**CHEAP, "activations": ["x"] * 40}, own)[0],
        server.request("POST", "/api/jobs", {**CHEAP, "alpha": "1:2:10000"}, own)[0],
        server.request("POST", "/api/jobs", {**CHEAP, "spectrum": "/etc/passwd"}, own)[0],
        server.request("POST", "/api/jobs", {**CHEAP, "kind": "__import__"}, own)[0],
        server.request("PUT", "/api/jobs", CHEAP, own)[0],
        *(server.request("GET", p)[0] for p in ("/../pyproject.toml", "/%2e%2e/x", "/api/jobs/none/file", "/x" * 300)),
    ]
    assert all(400 <= status < 500 for status in refused), refused
    for _ in range(3):
        assert _large(server) in (413, None)
    for text in (NESTED, SCRIPT, "__import__('os').system('id')", "x.__class__", "\x00", "x" * 299):
        ((name, told), *_) = server.events(server.submit({**CHEAP, "activations": [text]}))
        assert name == "failed" and "error of ours" not in told["message"], told
    jobs = [server.request("POST", "/api/jobs", LONG, own) for _ in range(100)]
    kept = [json.loads(body)["job"] for status, body in jobs if status == 202]
    assert {status for status, _ in jobs} == {202, 429} and len(kept) <= MOST_WAITING + 2
    for key in kept:
        _leave(server, key)
    assert len(server.family()) < 8
    for key in kept:
        assert server.request("DELETE", f"/api/jobs/{key}")[0] == 204
    assert server.request("GET", "/")[0] == 200
    assert server.events(server.submit(CHEAP))[-1][0] == "done"
    assert server.megabytes() < before + 60.0


def _large(server):
    """The answer to ten megabytes without a stated length, or None where the connection was closed before it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sent:
        head = f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        sent.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(160):
                sent.sendall(b"10000\r\n" + b" " * MOST_BYTES + b"\r\n")
            return int(sent.recv(64).split()[1])
        except (ConnectionError, IndexError):
            return None


def _leave(server, key):
    """A listener that goes away in the middle of a line."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sent:
        sent.sendall(f"GET /api/jobs/{key}/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())


def test_requests_are_read_by_known_keys_alone():
    kind, arguments = checked(CHEAP)
    assert kind == "explore" and arguments["lambda_k"] == "1"
    for wrong in ({"optimal": "yes"}, {"parameters": {"c": [1]}}, {"nu": {}}, {"tokens": ""}, {"alpha": True}):
        with pytest.raises(InputError):
            checked({**CHEAP, **wrong})
    with pytest.raises(InputError):
        checked([])


def test_the_command_refuses_a_port_that_is_taken(server, monkeypatch):
    run = CliRunner().invoke(main, ["serve", "--port", str(server.port)])
    assert run.exit_code == 2 and "port" in run.output
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    run = CliRunner().invoke(main, ["serve"])
    assert run.exit_code == 2 and "pip install 'replicode[serve]'" in run.output


@pytest.mark.full
def test_the_property_suite_comes_last(server):
    events = server.events(server.submit({**CHEAP, "suite": True, "bayes": True}))
    assert [name for name, _ in events][-2:] == ["suite", "done"]
    rows = [c for name, c in events if name == "chart"][-1]["spec"]["data"]["values"]
    assert {row["kind"] for row in rows} == {"stable", "bayes"}
    key = server.submit({**CHEAP, "kind": "report"})
    assert server.events(key)[-1][0] == "done"
    assert server.request("GET", f"/api/jobs/{key}/file")[1].startswith(b"<!DOCTYPE html>")
