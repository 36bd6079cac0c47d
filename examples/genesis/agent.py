#!/usr/bin/env python3
"""An agent of the Genesis protocol in Python, with the package cryptography (Debian: python3-cryptography).

As a worker it registers its key, polls its inbox, and answers "reverse_lines", with a partial response for each line. As a
requester it sends a REQUEST and verifies what comet answers.

  COMET_TOKEN=... ./agent.py worker py-worker
  COMET_TOKEN=... ./agent.py request py-boss reverse_lines '{"text": "one two"}'

COMET_TOKEN needs the scope agents:write. It is used only to register the agent: afterwards its signature names it.
"""
import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

if not ((sys.argv[1:2] == ["worker"] and len(sys.argv) == 3 or sys.argv[1:2] == ["request"] and len(sys.argv) in (4, 5))
        and os.environ.get("COMET_TOKEN")):
    sys.exit(__doc__)
SERVER = os.environ.get("COMET_SERVER", "http://127.0.0.1:8080")
ME = sys.argv[2]
KEY = Ed25519PrivateKey.generate()
PUBLIC = base64.b64encode(KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
SIGNED = ("id", "type", "from", "to", "intent", "payload", "timestamp")
KEYS = {}


def compact(value, sort=False):
    """The JSON text of a value, as it is sent: signing this text is form 1 of docs/genesis.md."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort).encode()


def signed_text(message):
    return compact({name: message[name] for name in SIGNED if name in message})


def canonical(message):
    """The text of the profile jcs. It equals RFC 8785 for names in ASCII and numbers that Python prints as JavaScript does."""
    return compact({name: value for name, value in message.items() if name not in ("signature", "signatureJcs")}, sort=True)


def sign(message):
    message["publicKey"] = PUBLIC
    message["signature"] = base64.b64encode(KEY.sign(signed_text(message))).decode()
    message["signatureJcs"] = base64.b64encode(KEY.sign(canonical(message))).decode()
    return message


def verify(text):
    """Returns a message if comet has signed the whole of it; InvalidSignature otherwise."""
    message = json.loads(text)
    if message["publicKey"] not in KEYS:  # also after comet has rotated its key
        with urllib.request.urlopen(SERVER + "/.well-known/jwks.json") as response:
            for key in json.load(response)["keys"]:
                raw = base64.urlsafe_b64decode(key["x"] + "=")
                KEYS[base64.b64encode(raw).decode()] = Ed25519PublicKey.from_public_bytes(raw)
    key = KEYS[message["publicKey"]]
    key.verify(base64.b64decode(message["signature"]), signed_text(message))
    key.verify(base64.b64decode(message["signatureJcs"]), canonical(message))
    if message["from"] != "nova" or message["to"] != ME:
        raise ValueError(f"a message from {message['from']} to {message['to']}")
    return message


def message(kind, to, **members):
    timestamp = time.time_ns() // 1000 * 1000  # a double represents nanoseconds only in whole microseconds, and RFC 8785 has only doubles
    return {"id": str(uuid.uuid4()), "type": kind, "version": "1.0", "from": ME, "to": to, "timestamp": timestamp, **members}


def request(to, intent, payload):
    return message("REQUEST", to, intent=intent, confidence=1, entities=[], payload=payload, context={}, priority="NORMAL", options={"stream": True})


def call(path, body=None, **headers):
    """Sends a request. A refusal is a message like the others."""
    out = urllib.request.Request(SERVER + path, None if body is None else compact(body), {"Content-Type": "application/json", **headers})
    try:
        return urllib.request.urlopen(out, timeout=120)
    except urllib.error.HTTPError as refused:
        return refused


def post(body, **headers):
    return call("/api/genesis/messages", body, **headers)


def register(capabilities):
    payload = {"id": ME, "capabilities": capabilities, "publicKey": PUBLIC, "signatureOnly": True}
    body = request("nova", "register_agent", payload)
    body["from"] = ME + "-setup"  # not the id of an agent; the token names the sender
    answer = json.load(post(body, Authorization="Bearer " + os.environ["COMET_TOKEN"]))
    if answer.get("status") != "SUCCESS":
        sys.exit(f"register_agent: {answer}")


def report(to, **members):
    response = post(sign(message("RESPONSE", "nova", correlationId=to["correlationId"], requestId=to["id"], **members)))
    if response.status != 202:
        sys.exit(response.read().decode())


def work(task):
    if task["intent"] != "reverse_lines":  # an order that needs no response, such as cancel_task
        return
    text = (task["payload"] or {}).get("text")
    if not isinstance(text, str):
        report(task, status="FAILURE", error={"code": "NO_TEXT", "message": "payload.text must be a text", "retryable": False})
        return
    lines = [line[::-1] for line in text.split("\n")]
    for line in lines:
        report(task, status="PARTIAL", data={"line": line})
    report(task, status="SUCCESS", data={"text": "\n".join(lines)}, usage={"tokens": 1})


def worker():
    authenticated, token = 0.0, ""
    wait = 0
    while True:
        if time.time() - authenticated > 600:  # the token is valid for 15 minutes
            token = verify(post(sign(request("nova", "authenticate", None))).read())["data"]["token"]
            authenticated = time.time()
        response = call(f"/api/agent/inbox?protocol=genesis&wait={wait}", Authorization="Bearer " + token)
        if response.status != 200:
            sys.exit(response.read().decode())
        if wait == 0:
            print(ME, "is working", flush=True)
        wait = 30
        for received in json.load(response)["messages"]:
            task = verify(compact(received))
            if task["type"] == "REQUEST":
                work(task)
            acknowledged = {"originalMessageId": task["id"]}  # comet delivers it again until then
            metadata = {"schemaVersion": "1.0", "contentType": "application/json"}
            post(sign(message("EVENT", "nova", eventType="message.ack", eventName="message acknowledged", payload=acknowledged,
                              metadata=metadata, deliveryGuarantee="at-most-once")))


def requester(intent, payload):
    response = post(sign(request("broadcast", intent, payload)), Accept="text/event-stream")
    if not response.headers["Content-Type"].startswith("text/event-stream"):  # comet has refused it, or fulfilled it
        print(json.dumps(verify(response.read())))
        return
    for line in response:
        if line.startswith(b"data: "):
            found = verify(line[len(b"data: "):])
            shown = {name: found[name] for name in ("type", "status", "sequence", "data", "error", "errorCode") if name in found}
            if found["type"] == "EVENT":
                shown["stage"] = found["payload"]["stage"]
            print(json.dumps(shown, ensure_ascii=False), flush=True)


if sys.argv[1] == "worker":
    register(["custom:reverse_lines"])
    worker()
else:
    register([])
    requester(sys.argv[3], json.loads(sys.argv[4] if len(sys.argv) > 4 else "null"))
