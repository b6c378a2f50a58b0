"""A real Prometheus scrapes a server for a while, and is asked what it got."""
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

CONFIG = """global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: moetier
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""
# What a dashboard would ask: all answer something.
QUERIES = ["llamacpp:tokens_predicted_total", "rate(llamacpp:prompt_tokens_total[10s])", "moetier:slots", "moetier:process_resident_bytes",
           "histogram_quantile(0.9, rate(moetier:first_token_seconds_bucket[10s]))", "sum by (finish) (moetier:requests_total)",
           'count({__name__=~"moetier:.+"}) > 20', 'count({__name__=~"llamacpp:.+"}) > 8']


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Scrape:
    """Runs Prometheus on a server's /metrics until the end of the `with`; without Prometheus it says so and checks nothing."""

    def __init__(self, port, folder):
        self.target = port
        self.folder = pathlib.Path(folder)
        self.process = None

    def __enter__(self):
        program = shutil.which("prometheus")
        if program is None:
            print("prometheus: SKIPPED, it is not installed (Debian: the package prometheus)", flush=True)
            return self
        self.folder.mkdir(parents=True)
        (self.folder / "prometheus.yml").write_text(CONFIG % self.target)
        self.port = free_port()
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(
            [program, f"--config.file={self.folder / 'prometheus.yml'}", f"--storage.tsdb.path={self.folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.log.close()

    def api(self, path, **query):
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=30) as reply:
            return json.load(reply)["data"]

    def query(self, text):
        return self.api("query", query=text)["result"]

    def check(self, metrics):
        """Sentences about what is wrong. `metrics` is the text of /metrics, for promtool."""
        if self.process is None:
            return []
        if self.process.poll() is not None:
            return ["Prometheus did not run: " + (self.folder / "log").read_text()[-1000:]]
        wrong = []
        time.sleep(1.5)  # one scrape more
        target = self.api("targets")["activeTargets"][0]
        if target["health"] != "up" or target["lastError"]:
            wrong.append(f"Prometheus calls the server {target['health']}: {target['lastError']}")
        ups = self.query("count_over_time(up[1h])"), self.query("sum_over_time(up[1h])")
        scrapes, good = (int(float(result[0]["value"][1])) if result else 0 for result in ups)
        if scrapes == 0 or good < scrapes:
            wrong.append(f"of {scrapes} scrapes by Prometheus {good} were good")
        if int(float(self.query("scrape_samples_scraped")[0]["value"][1])) < 100:
            wrong.append("Prometheus got fewer than 100 samples from a scrape")
        wrong += [f"Prometheus has no answer to {text}" for text in QUERIES if not self.query(text)]
        lint = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True)
        # llama-server's names have a colon, and ours are like them; all else counts.
        wrong += [f"promtool check metrics: {line}" for line in (lint.stdout + lint.stderr).splitlines()
                  if line and not line.endswith("metric names should not contain ':'")]
        slowest = float(self.query("max_over_time(scrape_duration_seconds[1h])")[0]["value"][1])
        print(f"prometheus: {good} of {scrapes} scrapes good, the slowest took {slowest * 1000:.0f} ms; {len(QUERIES)} queries asked", flush=True)
        return wrong
