# SPDX-License-Identifier: Apache-2.0
"""contrib/prometheus and contrib/grafana: alerts and a dashboard that ask for metrics that are there, in
expressions that Prometheus's own promtool accepts."""

import json
import os
import re
import shutil
import subprocess
import unittest
import urllib.request

import testlib
from testlib.paths import SOURCE_ROOT

RULES = SOURCE_ROOT / "contrib/prometheus/ctrun.rules.yml"
DASHBOARD = SOURCE_ROOT / "contrib/grafana/ctrun.json"
PROMTOOL = shutil.which("promtool")

# Metrics, per minute, and what must be alerted on after 20 minutes.
ALERTS = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'ctrun_job_info{instance="a", run_id="j"}', values: '1x40'}
      - {series: 'ctrun_ready{instance="a"}', values: '0x40'}
      - {series: 'ctrun_job_nodes_expected{instance="a", run_id="j"}', values: '4x40'}
      - {series: 'ctrun_job_nodes_present{instance="a", run_id="j"}', values: '3x40'}
      - {series: 'ctrun_job_restarts_total{instance="a", run_id="j"}', values: '0+1x40'}
      - {series: 'ctrun_store_memory_refused_total{instance="a"}', values: '0x40'}
      - {series: 'ctrun_job_hangs{instance="a", run_id="j"}', values: '0x9 1x30'}
      - {series: 'ctrun_job_workers{instance="a", run_id="j", state="failed"}', values: '0x40'}
      - {series: 'ctrun_job_workers{instance="a", run_id="j", state="running"}', values: '8x40'}
    alert_rule_test:
      - eval_time: 20m
        alertname: CtrunMachinesMissing
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, run_id: j}
            exp_annotations:
              summary: 'Job j lacks machines: 3 are there'
              description: 'The job does not run before they come. /status at a names who is missing.'
      - eval_time: 4m
        alertname: CtrunMachinesMissing
        exp_alerts: []
      - eval_time: 20m
        alertname: CtrunNotReady
        exp_alerts:
          - exp_labels: {severity: warning, instance: a}
            exp_annotations:
              summary: 'The job at a has not been complete for 10 minutes'
              description: '/readyz says what is missing.'
      - eval_time: 35m
        alertname: CtrunRestartsOften
        exp_alerts:
          - exp_labels: {severity: warning, instance: a, run_id: j}
            exp_annotations:
              summary: 'Job j restarted 30 times in 30 minutes'
              description: 'The failures are in /status at a: look whether it is the same machine each time.'
      - {eval_time: 9m, alertname: CtrunJobHangs, exp_alerts: []}
      - eval_time: 20m
        alertname: CtrunJobHangs
        exp_alerts:
          - exp_labels: {severity: critical, instance: a, run_id: j}
            exp_annotations:
              summary: 'Job j hangs'
              description: '/status at a says since when and which rank holds it up.'
      - {eval_time: 20m, alertname: CtrunStoreMemory, exp_alerts: []}
      - {eval_time: 20m, alertname: CtrunWorkersFailed, exp_alerts: []}
"""


def expressions(node):
    """Every value of a field "expr" in the dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from [value] if key == "expr" else expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


class Monitoring(testlib.Case):
    def setUp(self):
        super().setUp()
        self.dashboard = json.loads(DASHBOARD.read_text())

    def promtool(self, *args, text=None):
        if PROMTOOL is None:
            self.skipTest("no promtool here (Debian's package prometheus)")
        done = subprocess.run([PROMTOOL, *args], input=text, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    @unittest.skipUnless(os.environ["HAVE_HTTP"] == "1", "built without HTTP")
    def test_every_metric_that_is_asked_for_is_served(self):
        job = self.start_ctrun("-n", 2, "--no-python", "sh", "-c", "echo port $MASTER_PORT; exec sleep 60")
        port = int(job.wait_for("port ").split()[-1])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=testlib.DEADLINE) as answer:
            served = answer.read().decode()
        names = set(re.findall(r"(?m)^# TYPE (\w+) ", served))
        asked = set(re.findall(r"\bctrun_\w+", RULES.read_text() + " ".join(expressions(self.dashboard))))
        self.assertGreater(len(asked), 15)
        self.assertEqual(asked - names, set())
        if PROMTOOL is not None:
            self.promtool("check", "metrics", text=served)

    def test_alerts_are_raised_when_they_should_be(self):
        self.assertIn("8 rules found", self.promtool("check", "rules", RULES))
        self.promtool("test", "rules", self.script("alerts.yml", ALERTS % RULES))

    def test_prometheus_accepts_what_the_dashboard_asks(self):
        rules = [
            {"record": f"panel_{n}", "expr": expr.replace("$__rate_interval", "5m").replace("$job", ".*")}
            for n, expr in enumerate(expressions(self.dashboard))
        ]
        self.assertGreater(len(rules), 15)
        # JSON is YAML, too.
        text = json.dumps({"groups": [{"name": "dashboard", "rules": rules}]})
        self.promtool("check", "rules", self.script("dashboard.yml", text))

    def test_panels_do_not_overlap(self):
        panels = self.dashboard["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        taken = set()
        for p in panels:
            at = p["gridPos"]
            cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
            self.assertEqual(cells & taken, set(), p["title"])
            self.assertLessEqual(at["x"] + at["w"], 24, p["title"])
            self.assertEqual(len({t["refId"] for t in p["targets"]}), len(p["targets"]))
            taken |= cells


if __name__ == "__main__":
    testlib.main()
