"""Runs SGLang's benchmark client with generated shared prefixes against a mock worker, and against the router in front of
two; started by run.sh. It checks that every request completes, and that the cached tokens that the client counts in the
answers are those that the workers count in their metrics, which makes the shares equal."""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 30
SPEED = 10
GROUPS = 8
LENGTHS = {"system-prompt-len": 512, "question-len": 64, "output-len": 32}


def main():
    """Measures both and gives the exit code."""
    options = arguments()
    scratch = pathlib.Path(options.scratch)
    tokenizer = make_tokenizer(scratch / "tokenizer")
    met = True
    for name, workers, with_router in [("worker", 1, False), ("router", 2, True)]:
        with Cluster(options, workers, with_router, scratch) as cluster:
            told = client(cluster.url, tokenizer, options.prompts_per_group, scratch / f"{name}.jsonl", scratch)
            met &= compare(name, told, cluster.counted(), GROUPS * options.prompts_per_group)
    return 0 if met else 1


def arguments():
    """What was typed, checked."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--simworker", default=str(target / "simworker"), help="the worker's binary")
    parser.add_argument("--router", default=str(target / "router"), help="the router's binary")
    parser.add_argument("--prompts-per-group", type=int, default=8, help=f"in each of {GROUPS} groups")
    parser.add_argument("--scratch", required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for program in (options.simworker, options.router):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is not there: cargo build --release -p simworker -p router")
    return options


def make_tokenizer(folder):
    """A tokenizer of 4,096 words, made here: nothing is fetched."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # of the environment, not of this repository

    words = [f"w{number}" for number in range(4096)]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate([*words, "?"])}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?", "model_max_length": 1 << 20}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


class Cluster:
    """Mock workers, and the router in front of them if wanted."""

    def __init__(self, options, workers, with_router, scratch):
        self.options, self.count, self.with_router, self.scratch = options, workers, with_router, scratch
        self.children = []

    def __enter__(self):
        flags = f"--workers {self.count} --port 0 --speed {SPEED} --served-model-name mock --enable-metrics"
        worker = self.start([self.options.simworker, *flags.split(), "--exit-with-stdin"], "simworker.log")
        self.workers = json.loads(worker.stdout.readline())["listening"]
        self.url = self.router() if self.with_router else self.workers[0]
        return self

    def start(self, command, log):
        """Starts a program that ends with its standard input, or with this script."""
        with open(self.scratch / log, "wb") as errors:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self.children.append(child)
        return child

    def router(self):
        """Starts the router and waits for its health."""
        port, metrics = free_port(), free_port()
        self.start([self.options.router, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *self.workers,
                    "--policy", "cache_aware", "--prometheus-port", str(metrics), "--log-level", "warn"], "router.log")
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
        while True:
            try:
                if read(f"{url}/v1/models"):
                    return url
            except (OSError, urllib.error.URLError):
                pass
            if time.monotonic() > deadline:
                raise SystemExit("the router is not ready: " + (self.scratch / "router.log").read_text()[-600:])
            time.sleep(0.05)

    def counted(self):
        """What the workers count: (cached tokens, prompt tokens)."""
        sums = {"sglang:cached_tokens_total": 0, "sglang:prompt_tokens_total": 0}
        for url in self.workers:
            for line in read(f"{url}/metrics").splitlines():
                name = re.match(r"[^{ ]*", line)[0]
                if name in sums:
                    sums[name] += float(line.rsplit(" ", 1)[1])
        return tuple(int(value) for value in sums.values())

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
            child.wait()


def free_port():
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read(url):
    """The text of an answer."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def client(url, tokenizer, prompts_per_group, result, home):
    """Runs the client and returns what it wrote. Without a warm-up its requests are all there are."""
    command = [sys.executable, "-m", "sglang.benchmark.serving", "--backend", "sglang", "--base-url", url,
               "--model", str(tokenizer), "--served-model-name", "mock", "--tokenizer", str(tokenizer),
               "--dataset-name", "generated-shared-prefix", "--gsp-num-groups", str(GROUPS),
               "--gsp-prompts-per-group", str(prompts_per_group), "--request-rate", "20", "--warmup-requests", "0",
               "--flush-cache", "--cache-report", "--disable-tqdm", "--output-file", str(result)]
    for name, length in LENGTHS.items():
        command += [f"--gsp-{name}", str(length)]
    # It keeps prompts in the home folder, and must not ask any hub.
    environment = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not result.exists():
        raise SystemExit(f"the client failed ({done.returncode}): {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(result.read_text().splitlines()[-1])


def compare(name, told, counted, expected):
    """Prints both sides: whether all holds."""
    report, completed = told["cache_report"], told["completed"]
    theirs = (report["total_cached_tokens"], report["total_prompt_tokens"])
    print(f"\n{name}: {completed} of {expected} requests completed; median TTFT {told['median_ttft_ms']:.1f} ms, "
          f"median ITL {told['median_itl_ms']:.2f} ms at speed {SPEED}")
    for who, (cached, prompt) in [("client", theirs), ("workers", counted)]:
        print(f"  {who:8} {cached:8} of {prompt:8} prompt tokens cached: {100 * cached / max(prompt, 1):.3f} %")
    holds = completed == expected and theirs == counted and theirs[0] > 0
    print("  holds" if holds else "  DOES NOT HOLD")
    return holds


if __name__ == "__main__":
    sys.exit(main())
