#!/usr/bin/env python3
"""Simulates a deployment in steps. Run it with comet worker:

    comet worker --type infra --capability custom:run_playbook -- ./deploy.py
    comet send --to infra run_playbook playbook=deploy.yml steps:=3
"""

import json
import signal
import sys
import time


def progress(percent: int, step: str) -> None:
    """Reports progress. Such a line is not part of the output."""
    print(f"::progress {percent} {step}", flush=True)


def stop(_signal, _frame) -> None:
    """Cleans up: the task was cancelled or took too long."""
    print("rolled back", flush=True)
    sys.exit(1)


def main() -> int:
    signal.signal(signal.SIGTERM, stop)
    parameters = json.load(sys.stdin)  # the task's parameters, an object
    playbook, steps = parameters.get("playbook"), int(parameters.get("steps", 3))
    if not playbook:
        print("the parameter playbook is missing", file=sys.stderr)
        return 2
    for step in range(steps):
        progress(100 * step // steps, f"step {step + 1} of {steps}")
        time.sleep(float(parameters.get("seconds", 0.2)))
        print(f"step {step + 1} done", flush=True)
    print("::tokens 120 tiny-model")  # tokens that a model used, charged to the agent
    print(f"deployed {playbook}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
