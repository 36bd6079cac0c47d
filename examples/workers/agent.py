#!/usr/bin/env python3
"""A complete agent that does not need the comet binary: it polls for tasks over HTTP (long poll).

    COMET_TOKEN=… ./agent.py [http://127.0.0.1:8080]

It uses only Python's standard library and runs one task at a time. A repeated request gets
its stored result and does not run again.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone

SERVER = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("COMET_SERVER", "http://127.0.0.1:8080")
TOKEN = os.environ["COMET_TOKEN"]


def call(method, path, body=None):
    request = urllib.request.Request(SERVER + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + TOKEN)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"{}")
    except urllib.error.HTTPError as rejected:
        if rejected.code in (401, 403):
            sys.exit("the server rejects the token")
        if rejected.code >= 500 or rejected.code == 429:
            raise  # temporary: retry
        print("rejected:", rejected.read().decode(), file=sys.stderr)
        return {}


def send(kind, payload, request=None):
    """Sends an envelope until the server has accepted it. The same message_id counts once."""
    envelope = {
        "protocol_version": "1.0", "message_id": str(uuid.uuid4()), "from_agent": ME["type"], "to_agent": "orchestrator",
        "timestamp": datetime.now(timezone.utc).isoformat(), "type": kind, "payload": payload,
        "trace_id": request["trace_id"] if request else str(uuid.uuid4()),
        "request_id": request["request_id"] if request else str(uuid.uuid4()),
    }
    retrying(lambda: call("POST", "/api/agent/message", envelope))


def retrying(action):
    pause = 0.25
    while True:
        try:
            return action()
        except (OSError, ValueError) as failure:
            print("retrying:", failure, file=sys.stderr)
            time.sleep(pause)
            pause = min(2 * pause, 15)


def work(request):
    """Executes a request and returns the payload of its result. Replace this with your own work."""
    task = request["payload"]
    send("work_status", {"task_id": task["task_id"], "status": "running", "progress_percent": 0}, request)  # accept it
    text = str(task["parameters"].get("text", ""))
    send("work_status", {"task_id": task["task_id"], "status": "running", "progress_percent": 50,
                         "step": {"number": 1, "name": "reversing", "output": f"{len(text)} characters\n"}}, request)
    return {"task_id": task["task_id"], "status": "success", "exit_code": 0, "output": text[::-1]}


ME = retrying(lambda: call("GET", "/api/v1/me"))["agent"]
DONE = {}  # (request_id, task_id) -> result: two requesters may use the same request_id
print("working as", ME["id"], flush=True)
while True:
    send("work_status", {"agent_id": ME["id"], "status": "online"})  # a heartbeat
    for message in retrying(lambda: call("GET", "/api/agent/inbox?wait=15")).get("messages", []):
        if message["type"] == "work_request" and message["payload"]["work_type"] != "cancel_task":
            key = message["request_id"], message["payload"]["task_id"]
            if key not in DONE:
                DONE[key] = work(message)
            send("work_result", DONE[key], message)
        retrying(lambda: call("POST", "/api/agent/inbox/ack", {"message_ids": [message["message_id"]]}))
