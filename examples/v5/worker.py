#!/usr/bin/env python3
"""A PROTOCOL_V5 worker over TCP with the capability "count_words". It reports progress, and
reads parameters that do not fit into a message.

    comet serve --v5-listen 127.0.0.1:7005 --v5-self-registration
    ./worker.py [127.0.0.1:7005]

It needs only Python's standard library. It registers itself as the agent v5-counter; with
COMET_TOKEN it runs as the agent of that token. It reconnects when the connection ends.
"""

import base64
import json
import os
import socket
import sys
import time

HOST, PORT = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7005").rsplit(":", 1)
SEGMENTS = "number route type task priority state err depth context budget data".split()
HEARTBEAT = 60  # seconds; comet closes a connection after ten minutes without a message


def pairs(data):
    """Returns the pairs of DATA. A semicolon between double quotes is text."""
    found, pair, quoted = {}, "", False
    for c in data + ";":
        quoted = quoted != (c == '"')
        if c != ";" or quoted:
            pair += c
            continue
        key, _, value = pair.strip().partition("=")
        found[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
        pair = ""
    return found


class Connection:
    def __init__(self):
        self.socket = socket.create_connection((HOST, int(PORT)), timeout=HEARTBEAT)
        self.buffer, self.me, self.count, self.postponed = b"", "W1", 0, []

    def send(self, kind, data, to=None, state="-", err="-"):
        """Sends a message. Its task, depth, context and budget are those of the message "to"."""
        to = to or dict.fromkeys(SEGMENTS, "-") | {"route": "O1>" + self.me, "task": "T0", "depth": "0", "context": "S0"}
        self.count = self.count % 9999 + 1
        route = f"{self.me}>{to['route'].split('>')[0]}"
        head = [f"M{self.count}", route, kind, to["task"], to["priority"], state, err, to["depth"], to["context"], to["budget"]]
        self.socket.sendall(("|".join(head) + "|" + data + "\n").encode())

    def receive(self):
        """Returns the next message as a dict. It sends heartbeats while it waits."""
        while b"\n" not in self.buffer:
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                self.send("H", "load=0%;queue=0")
                continue
            if not more:
                raise ConnectionError("comet has closed the connection")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return dict(zip(SEGMENTS, line.decode().split("|")))

    def fetch(self, ref, about):
        """Reads the text of a reference, page by page. Messages that arrive meanwhile are postponed."""
        text, page, of = b"", 0, 1
        while page < of:
            self.send("Q", f"ref={ref};page={page + 1}", about | {"route": "O1>" + self.me})
            while True:
                reply = self.receive()
                data = pairs(reply["data"])
                if reply["type"] in "SE" and reply["context"] == about["context"] and ("page" in data or reply["type"] == "E"):
                    break
                self.postponed.append(reply)
            if reply["type"] == "E":
                raise ValueError(data.get("desc", reply["err"]))
            page, of = int(data["page"]), int(data["of"])
            text += base64.b64decode(data["text"]) if data.get("enc") == "base64" else data["text"].encode()
        return text.decode()


def execute(connection, request):
    """Executes a request. Put your own work here, and send U at least every 30 s."""
    parameters = pairs(request["data"])
    if parameters.get("call") != "count_words":
        return connection.send("E", "desc=only count_words", request, "F", "E19")
    try:
        if parameters.get("params", "").startswith("#REF:"):
            parameters = json.loads(connection.fetch(parameters["params"], request))
        text = str(parameters["text"])
    except (KeyError, ValueError) as error:
        return connection.send("E", f"desc=text cannot be read;details={type(error).__name__}", request, "F", "E43")
    connection.send("U", "progress=50%;step=counting", request, "R")
    connection.send("S", f"words={len(text.split())};characters={len(text)};tokens=1", request, "D")


def main():
    connection, token = Connection(), os.environ.get("COMET_TOKEN")
    connection.send("J", "caps=count_words;max_depth=2;version=V5;" + (f"token={token}" if token else "name=counter"))
    while True:
        message = connection.postponed.pop(0) if connection.postponed else connection.receive()
        if message["type"] == "A" and "registered" in pairs(message["data"]):
            connection.me = pairs(message["data"])["id"]
            print("working as", connection.me, flush=True)
        elif message["type"] in "RX":
            execute(connection, message)
        elif message["type"] == "E":
            print("rejected:", message["err"], message["data"], file=sys.stderr, flush=True)


pause = 0.25
while True:
    try:
        started = time.monotonic()
        main()
    except OSError as error:
        pause = 0.25 if time.monotonic() - started > 30 else min(2 * pause, 15)
        print("reconnecting:", error, file=sys.stderr, flush=True)
        time.sleep(pause)
