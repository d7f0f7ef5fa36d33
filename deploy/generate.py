#!/usr/bin/env python3
"""Writes deploy/grafana/*.json and deploy/prometheus/{recording,alerts}.yml from dashboards.py and alerts.py.

    deploy/generate.py           writes them
    deploy/generate.py --check   ends with 1 if what is there is something else, and says what
"""

import json
import pathlib
import re
import sys

from alerts import ALERTS, RECORDING
from dashboards import DASHBOARDS, grafana

HERE = pathlib.Path(__file__).resolve().parent
HEAD = "# Written by deploy/generate.py; change deploy/alerts.py instead.\n"


def _text(value):
    return json.dumps(value, ensure_ascii=False)  # a string of JSON is one of YAML


SECONDS = {"s": 1, "m": 60, "h": 3600}


def _lasts(duration, scale):
    """A duration of Prometheus, as 5m, times `scale`; itself for 1."""
    if scale == 1:
        return duration
    return f"{round(int(duration[:-1]) * SECONDS[duration[-1]] * scale * 1000)}ms"


def _scaled(expr, scale):
    return re.sub(r"\[(\w+)\]", lambda window: f"[{_lasts(window[1], scale)}]", expr)


def recording_rules(scale=1):
    lines = [HEAD + f"groups:\n- name: baton-recording\n  interval: {_lasts('15s', scale)}\n  rules:\n"]
    for name, expr in RECORDING:
        lines.append(f"  - record: {name}\n    expr: {_text(_scaled(expr, scale))}\n")
    return "".join(lines)


def alert_rules(scale=1):
    lines = [HEAD + "groups:\n- name: baton-alerts\n  rules:\n"]
    for each in ALERTS:
        lines.append(f"  - alert: {each['name']}\n    expr: {_text(_scaled(each['expr'], scale))}\n"
                     f"    for: {_lasts(each['for'], scale)}\n"
                     f"    labels:\n      severity: {each['severity']}\n"
                     f"    annotations:\n      summary: {_text(each['summary'])}\n"
                     f"      runbook: docs/OPERATING.md#{each['name'].lower()}\n")
    return "".join(lines)


def rules(scale=1):
    """scale: tests take times of all rules so much shorter (windows, waits, intervals)."""
    return {"recording.yml": recording_rules(scale), "alerts.yml": alert_rules(scale)}


def files():
    written = {f"prometheus/{name}": text for name, text in rules().items()}
    for name, (title, uid, panels) in DASHBOARDS.items():
        written[f"grafana/{name}.json"] = json.dumps(grafana(title, uid, panels), indent=1, ensure_ascii=False) + "\n"
    return written


def main():
    stale = []
    for name, text in files().items():
        path = HERE / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if sys.argv[1:] == ["--check"]:
            stale.append(name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print("not what deploy/generate.py writes: " + ", ".join(stale), file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
