# SPDX-License-Identifier: Apache-2.0
"""`apply()` in a process that never trains: a server whose threads call a model without gradients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.canonical import source_hash

if TYPE_CHECKING:
    from tests.api.conftest import Project

FORWARD = "def forward(self, x):\n    return self.linear(x)\n"
MODEL = f"""
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.eye_(self.linear.weight)

    {FORWARD.replace(chr(10), chr(10) + "    ")}
"""
FAST = """
import torch
from turbo_hydra import Latch, fallback

HEALTH = Latch("health of the fast forward", True)

def forward(self, x):
    if x.shape[0] == 3:
        fallback("batch of 3")
        return self.linear(x)
    return torch.nn.functional.linear(x, self.linear.weight) * 2.0

def usable(self, x):
    return HEALTH.value and x.shape[0] > 1
"""
CATALOG = """
from turbo_hydra import group, replace

group("server.fast", replace("served.Net.forward", "served_fast.forward", runtime_condition="served_fast.usable"))
"""
SERVER = """
    import concurrent.futures, http.server, threading, urllib.request
    import torch
    torch.set_num_threads(1)
    report = turbo_hydra.apply(optimization_config_path="server.yaml")
    import served
    net = served.Net().eval()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            rows = int(self.rfile.read(int(self.headers["Content-Length"])))
            with torch.inference_mode():
                out = net(torch.ones(rows, 4))
            body = json.dumps([float(out.sum()), out.requires_grad]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(rows):
        with opener.open(f"http://127.0.0.1:{server.server_port}", str(rows).encode(), timeout=60) as answer:
            return json.loads(answer.read())

    def ask_all():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return list(pool.map(ask, [1, 2, 3, 4] * 25))

    def hits():
        return report.execution[0]["members"][0]["hits"]

    first, told = ask_all(), hits()
    from served_fast import HEALTH
    HEALTH.set(False)
    still = ask(4)
    turbo_hydra.end_step()
    second = ask_all()
    server.shutdown()
    show(first=first, told=told, still=still, second=second, last=hits(), summary=report.summary)
"""


def test_threads_of_a_server_get_the_right_answers_and_every_call_is_counted(project: Project) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    project.write("served.py", MODEL)
    project.write("served_fast.py", FAST)
    project.write("server_catalog.py", CATALOG)
    record: dict[str, Any] = {"dist": None, "version": None, "ast": None, "chain": [], "file": "served.py"}
    record["source"] = source_hash(FORWARD)
    evidence = {
        "schema_version": "turbo_hydra/evidence/v1",
        "provenance": {},
        "targets": {"served.Net.forward": [record]},
        "replacements": {},
    }
    project.write("server.evidence.json", json.dumps(evidence))
    project.write(
        "server.yaml",
        "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\nmetadata: {id: server}\n"
        "catalogs: [server_catalog]\nevidence: server.evidence.json\ngroups: {server: {fast: true}}\n",
    )
    found = project.run(SERVER)
    # A matrix of ones through the unit matrix; twice that where the replacement ran.
    assert found["first"] == [[4.0, False], [16.0, False], [12.0, False], [32.0, False]] * 25
    assert found["told"] == {"replacement": 50, "original": 50, "traced": 0, "reasons": {"batch of 3": 25}}
    assert found["still"] == [32.0, False], "a change waits until it is said that nothing is under way"
    assert found["second"] == [[4.0, False], [8.0, False], [12.0, False], [16.0, False]] * 25
    assert found["last"]["replacement"] == 51
    assert found["last"]["original"] == 150
    assert found["summary"]["applied"] == 1
