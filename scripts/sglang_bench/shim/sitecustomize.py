"""Lets `python -m sglang.benchmark.serving` run where only the client's needs are installed.

Importing the package `sglang` imports its whole front end, and two helpers of the client live in modules of the engine,
which import torch. The client takes three plain things from there. So with SGLANG_CLIENT_ONLY set, the packages on the
way to the client are declared without running them, and the two modules hold just these three things. And `datasets`,
which only other kinds of prompts load, is declared too. All of the client itself is the released one.
"""

import importlib.machinery
import importlib.util
import os
import sys
import types


def declare(name, path=(), **members):
    """A module that is not looked for any more."""
    module = types.ModuleType(name)
    module.__path__ = list(path)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__dict__.update(members)
    sys.modules[name] = module


def base_url(url, host, port):
    """Where the client sends to."""
    return url or f"http://{host}:{port}"


def host_port(url, host, port):
    """The same without a scheme."""
    return url or f"{host}:{port}"


def client_only():
    """Declares the packages around the client."""
    found = importlib.util.find_spec("sglang")
    if not found:
        return
    declare("sglang", found.submodule_search_locations)
    for name in ("sglang.srt", "sglang.srt.utils", "sglang.srt.disaggregation"):
        declare(name)
    declare("sglang.srt.utils.network", resolve_base_url=base_url, resolve_host_port=host_port)
    declare("datasets", load_dataset=None)
    # The host that means: there is no prefill worker.
    declare("sglang.srt.disaggregation.utils", FAKE_BOOTSTRAP_HOST="2.2.2.2")


if os.environ.get("SGLANG_CLIENT_ONLY"):
    client_only()
