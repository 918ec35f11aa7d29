"""A real Prometheus before a real router: does it take what deploy/prometheus and deploy/grafana say? Not part of the
tests: it needs Debian's `prometheus` package (Prometheus and promtool), which --download fetches and unpacks into a
directory that is thrown away; nothing is installed and no service is started.

  python3 scripts/prometheus/check.py --download [--binaries target/debug]

It starts two mock workers, the router and Prometheus on free ports of the loopback, sends some requests, and fails when

* promtool finds fault with the configuration, the alerts, their tests, or with what /metrics and /engine_metrics say in the
  older text format;
* a target is not up, or Prometheus, which asks for OpenMetrics, warns of anything while it scrapes and evaluates;
* /metrics or a worker's part of /engine_metrics has not become series of their jobs;
* an expression of the dashboard is refused.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PATIENCE = 30
# The job that reads the router's own metrics, and the one that reads its workers'.
ROUTER, ENGINES = "router", "sglang-engines"
# How promtool begins its complaints about names that are SGLang's and that dashboards select by.
KNOWN = {ROUTER: ("smg_http_inflight_request_age_count non-histogram", ), ENGINES: ()}


def main():
    """Runs every check, tells each complaint, and gives the exit code."""
    options = arguments()
    require(options)
    with tempfile.TemporaryDirectory(prefix="prometheus-check-") as scratch, processes.Programs() as programs:
        scratch = pathlib.Path(scratch)
        tools = fetch(scratch) if options.download else options.tools
        complaints = promtool_on_files(tools)
        ports = processes.free_ports(5)
        cluster(programs, options.binaries, ports, scratch)
        complaints += lint(tools, ROUTER, f"http://127.0.0.1:{ports[1]}/metrics")
        complaints += lint(tools, ENGINES, f"http://127.0.0.1:{ports[0]}/engine_metrics")
        base, log = prometheus(programs, tools, ports, scratch, options.jobs)
        complaints += targets(base) + series(base, ports[3:]) + dashboard(base) + rules(base)
        complaints += [f"Prometheus: {line}" for line in log.read_text().splitlines()
                       if "level=warn" in line or "level=error" in line]
    for complaint in complaints:
        print(f"- {complaint}")
    print(f"{len(complaints)} complaints" if complaints else "nothing to complain about")
    return 1 if complaints else 0


def arguments():
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--download", action="store_true", help="fetch Debian's package with apt-get")
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("/usr/bin"), help="where prometheus and promtool are")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target/debug", help="where router and simworker are")
    parser.add_argument("--jobs", nargs="+", help="jobs of prometheus.yml to scrape; all by default")
    return parser.parse_args()


def require(options):
    """Ends with a remedy where a program is missing."""
    tools = [] if options.download else [options.tools / name for name in ("prometheus", "promtool")]
    for missing in (path for path in tools if not path.exists()):
        raise SystemExit(f"no {missing.name} in {missing.parent}: give --tools DIRECTORY, or --download")
    for missing in (path for path in (options.binaries / "router", options.binaries / "simworker") if not path.exists()):
        raise SystemExit(f"no {missing.name} in {missing.parent}: run `cargo build`, or give --binaries DIRECTORY")


def fetch(scratch):
    """Debian's package, unpacked: the directory of its programs."""
    subprocess.run(["apt-get", "-q", "download", "prometheus"], cwd=scratch, check=True, stderr=subprocess.DEVNULL)
    (package, ) = scratch.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, scratch / "package"], check=True)
    return scratch / "package/usr/bin"


def promtool_on_files(tools):
    """promtool's opinion of the files as they are."""
    complaints = []
    for words in (["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run([tools / "promtool", *words], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
        print(f"promtool {' '.join(words)}: {'good' if done.returncode == 0 else 'bad'}")
        if done.returncode != 0:
            complaints.append(f"promtool {' '.join(words)}: {done.stdout} {done.stderr}")
    return complaints


def lint(tools, job, url):
    """promtool's opinion of a page, its names and its help. It reads the older text format only, as one gets it who does not
    ask for another."""
    done = subprocess.run([tools / "promtool", "check", "metrics"], input=get(url).decode(), capture_output=True, text=True, check=False)
    said = sorted({line for line in (done.stdout + done.stderr).splitlines() if line})
    new = [line for line in said if not line.startswith(KNOWN[job])]
    print(f"promtool check metrics, {job}: {len(said)} complaints, {len(said) - len(new)} of them known")
    return [f"promtool check metrics, {job}: {line}" for line in new]


def cluster(programs, binaries, ports, scratch):
    """Two mock workers, the router, and some requests through it. Ports: traffic, metrics, Prometheus, workers."""
    traffic, metrics, _, first, second = ports
    for port in (first, second):
        programs.start("simworker", [binaries / "simworker", "--enable-metrics", "--speed", "20", "--port", str(port)], scratch)
    programs.start("router", [binaries / "router", "--host", "127.0.0.1", "--port", str(traffic), "--prometheus-host", "127.0.0.1",
                              "--prometheus-port", str(metrics), "--worker-urls", f"http://127.0.0.1:{first}",
                              f"http://127.0.0.1:{second}"], scratch)
    ready = f"http://127.0.0.1:{traffic}/readiness"
    programs.wait_for("the workers to be healthy", lambda: json.loads(get(ready))["healthy_workers"] == 2)
    requests(traffic)


def requests(traffic, count=40):
    """Streams with a shared prefix and without."""
    for number in range(count):
        prompt = f"{'one prefix ' * 40} {number}" if number % 2 else f"{number} alone"
        body = {"text": prompt, "stream": True, "sampling_params": {"max_new_tokens": 4}}
        get(f"http://127.0.0.1:{traffic}/generate", json.dumps(body).encode())


def prometheus(programs, tools, ports, scratch, jobs):
    """Prometheus with our configuration, the ports and the pace apart, once it has scraped three times."""
    traffic, metrics, own = ports[:3]
    config = (DEPLOY / "prometheus/prometheus.yml").read_text()
    for old, new in (("127.0.0.1:29000", f"127.0.0.1:{metrics}"), ("127.0.0.1:30000", f"127.0.0.1:{traffic}"), (": 15s", ": 1s"),
                     ("scrape_timeout: 10s", "scrape_timeout: 1s"), ("- alerts.yml", f"- {DEPLOY}/prometheus/alerts.yml")):
        if old not in config:
            raise SystemExit(f"deploy/prometheus/prometheus.yml: no `{old}` to adapt")
        config = config.replace(old, new)
    if jobs:
        head, *entries = config.split("  - job_name: ")
        config = "  - job_name: ".join([head, *(entry for entry in entries if entry.split("\n", 1)[0] in jobs)])
    (scratch / "prometheus.yml").write_text(config)
    log = programs.start("prometheus", [tools / "prometheus", f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/data",
                                        f"--web.listen-address=127.0.0.1:{own}", "--web.enable-lifecycle"], scratch)
    base = f"http://127.0.0.1:{own}/api/v1"
    programs.wait_for("three scrapes of every target", lambda: all_scraped(base, 3))
    requests(traffic)
    programs.wait_for("three more", lambda: all_scraped(base, 6))
    return base, log


def all_scraped(base, times):
    """Whether every target was asked so often. It need not have answered."""
    active = ask(base, "targets")["activeTargets"]
    counts = ask(base, "query", query="count_over_time(up[10m])")["result"]
    return active and len(counts) == len(active) and all(int(row["value"][1]) >= times for row in counts)


def targets(base):
    """Complaints about targets that are not up."""
    active = ask(base, "targets")["activeTargets"]
    print(f"{len(active)} targets")
    return [f"{target['scrapeUrl']} is {target['health']}: {target['lastError']}" for target in active if target["health"] != "up"]


def series(base, workers):
    """Complaints about what was scraped of the jobs that there are: the router's own series, and those of each worker."""
    selectors = {ROUTER: [f'job="{ROUTER}",__name__=~"smg_.*"'],
                 ENGINES: [f'job="{ENGINES}",__name__=~"sglang_.*",worker_addr="http://127.0.0.1:{port}"' for port in workers]}
    complaints = []
    for job in {target["labels"]["job"] for target in ask(base, "targets")["activeTargets"]}:
        for selector in selectors[job]:
            counted = ask(base, "query", query=f"count({{{selector}}})")["result"]
            print(f"{counted[0]['value'][1] if counted else 0} series of {{{selector}}}")
            complaints += [] if counted else [f"no series of {{{selector}}}"]
    return complaints


def rules(base):
    """Complaints about alerts that cannot be evaluated."""
    found = [rule for group in ask(base, "rules")["groups"] for rule in group["rules"]]
    print(f"{len(found)} alerts, firing or pending: {[rule['name'] for rule in found if rule['alerts']]}")
    return [f"alert {rule['name']}: {rule['lastError']}" for rule in found if rule.get("lastError")]


def dashboard(base):
    """Complaints about expressions that Prometheus refuses. One without data is told: some need what did not happen here."""
    panels = json.loads((DEPLOY / "grafana/router.json").read_text())["panels"]
    complaints, empty, count = [], [], 0
    for panel in panels:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$__rate_interval", "10s").replace("$job", "router").replace("$instance", ".*")
            count += 1
            try:
                if not ask(base, "query", query=expr)["result"]:
                    empty.append(panel["title"])
            except urllib.error.HTTPError as error:
                complaints.append(f"dashboard, {panel['title']}: {error.read().decode()}")
    print(f"{count} expressions of the dashboard, without data here: {empty}")
    return complaints


def ask(base, what, **query):
    """Prometheus' answer."""
    return json.loads(get(f"{base}/{what}?{urllib.parse.urlencode(query)}"))["data"]


def get(url, body=None):
    """The answer of success."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.read()


if __name__ == "__main__":
    sys.exit(main())
