#!/usr/bin/env python3
"""A worker of PROTOCOL_V5 over TCP: it can "count_words", tells how far it is, and
fetches parameters that are too long for a line.

    comet serve --v5-listen 127.0.0.1:7005
    ./worker.py [127.0.0.1:7005]

Python's standard library only. It registers itself as the agent v5-counter; with
COMET_TOKEN it is the agent of that token. It comes back by itself when the line ends.
"""

import base64
import json
import os
import socket
import sys
import time

HOST, PORT = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7005").rsplit(":", 1)
FIELDS = "number route type task priority state err depth context budget data".split()
SILENCE = 60  # seconds; comet ends a line that is silent for ten minutes


def pairs(data):
    """The pairs of DATA. What stands in double quotes is no delimiter."""
    found, place, quoted = {}, "", False
    for c in data + ";":
        quoted = quoted != (c == '"')
        if c != ";" or quoted:
            place += c
            continue
        key, _, value = place.strip().partition("=")
        found[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
        place = ""
    return found


class Line:
    def __init__(self):
        self.socket = socket.create_connection((HOST, int(PORT)), timeout=SILENCE)
        self.rest, self.me, self.count, self.later = b"", "W1", 0, []

    def say(self, kind, data, to=None, state="-", err="-"):
        """Sends one line. What it says of the task is that of the line it answers."""
        to = to or dict.fromkeys(FIELDS, "-") | {"route": "O1>" + self.me, "task": "T0", "depth": "0", "context": "S0"}
        self.count = self.count % 9999 + 1
        back = f"{self.me}>{to['route'].split('>')[0]}"
        head = [f"M{self.count}", back, kind, to["task"], to["priority"], state, err, to["depth"], to["context"], to["budget"]]
        self.socket.sendall(("|".join(head) + "|" + data + "\n").encode())

    def hear(self):
        """Returns the next line as a dict, and says that it lives where none comes."""
        while b"\n" not in self.rest:
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                self.say("H", "load=0%;queue=0")
                continue
            if not more:
                raise ConnectionError("comet has ended the line")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return dict(zip(FIELDS, line.decode().split("|")))

    def fetch(self, ref, about):
        """Reads what a reference stands for, page by page. Other lines wait meanwhile."""
        text, page, of = b"", 0, 1
        while page < of:
            self.say("Q", f"ref={ref};page={page + 1}", about | {"route": "O1>" + self.me})
            while True:
                answer = self.hear()
                data = pairs(answer["data"])
                if answer["type"] in "SE" and answer["context"] == about["context"] and ("page" in data or answer["type"] == "E"):
                    break
                self.later.append(answer)
            if answer["type"] == "E":
                raise ValueError(data.get("desc", answer["err"]))
            page, of = int(data["page"]), int(data["of"])
            text += base64.b64decode(data["text"]) if data.get("enc") == "base64" else data["text"].encode()
        return text.decode()


def work(line, request):
    """Does one request. Put your own work here; say U at least every 30 s meanwhile."""
    asked = pairs(request["data"])
    if asked.get("call") != "count_words":
        return line.say("E", "desc=only count_words", request, "F", "E19")
    try:
        if asked.get("params", "").startswith("#REF:"):
            asked = json.loads(line.fetch(asked["params"], request))
        text = str(asked["text"])
    except (KeyError, ValueError) as wrong:
        return line.say("E", f"desc=text cannot be read;details={type(wrong).__name__}", request, "F", "E43")
    line.say("U", "progress=50%;step=counting", request, "R")
    line.say("S", f"words={len(text.split())};characters={len(text)};tokens=1", request, "D")


def main():
    line, token = Line(), os.environ.get("COMET_TOKEN")
    line.say("J", "caps=count_words;max_depth=2;version=V5;" + (f"token={token}" if token else "name=counter"))
    while True:
        heard = line.later.pop(0) if line.later else line.hear()
        if heard["type"] == "A" and "registered" in pairs(heard["data"]):
            line.me = pairs(heard["data"])["id"]
            print("working as", line.me, flush=True)
        elif heard["type"] in "RX":
            work(line, heard)
        elif heard["type"] == "E":
            print("refused:", heard["err"], heard["data"], file=sys.stderr, flush=True)


pause = 0.25
while True:
    try:
        started = time.monotonic()
        main()
    except OSError as failure:
        pause = 0.25 if time.monotonic() - started > 30 else min(2 * pause, 15)
        print("trying again:", failure, file=sys.stderr, flush=True)
        time.sleep(pause)
