"""Round trips of the official `openai` client through the router: answers, streams, tool calls and every refusal.

Run by run.sh; the only argument is the directory of the binaries. Exit code 1 if a round trip fails.
"""

import contextlib
import json
import sys
import threading
import time
import traceback

import openai
from processes import Router, Scripted, Simworker, answer_json, answer_stream, dead_url

BINARIES = sys.argv[1]
HELLO = [{"role": "user", "content": "Hello"}]


def client(router, **options):
    return openai.OpenAI(base_url=router.base_url, **{"api_key": "sk-client", "max_retries": 0, "timeout": 20, **options})


@contextlib.contextmanager
def behind_router(script, *flags, model=None):
    """A scripted worker behind a router, and a client of that."""
    with Scripted(script, model) as worker, Router(BINARIES, [worker.url], *flags) as router:
        yield client(router), worker


@contextlib.contextmanager
def simulated(*flags):
    """Two simulated workers behind a router, and a client of that."""
    with Simworker(BINARIES, "--workers", "2", *flags) as workers, Router(BINARIES, workers.urls) as router:
        yield client(router)


def refused(kind, status, code, call):
    """The call raises just this, and says why in words."""
    try:
        call()
    except openai.APIStatusError as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}"
        assert error.status_code == status, error.status_code
        assert error.code == code and error.response.headers["x-router-error-code"] == code, error.code
        sentence = error.body["message"]
        assert sentence.endswith(".") and " " in sentence and sentence in str(error), str(error)
        return error
    raise AssertionError(f"no refusal with {code}")


def chat(api, **options):
    return api.chat.completions.create(**{"model": "default", "messages": HELLO, **options})


# --- answers


def an_answer_in_one_piece():
    for flags in ([], ["--instant"]):
        with simulated(*flags) as api:
            answer = chat(api, max_tokens=8)
            assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.content
            assert flags or answer.usage.completion_tokens == 8, answer.usage
            text = api.completions.create(model="default", prompt="Hello", max_tokens=4)
            assert text.choices[0].text and (flags or text.usage.completion_tokens == 4), text.usage


def an_answer_as_a_stream():
    for flags in ([], ["--instant"]):
        with simulated(*flags) as api:
            chunks = list(chat(api, max_tokens=8, stream=True))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text and chunks[-1].choices[0].finish_reason, chunks[-1]
            pieces = list(api.completions.create(model="default", prompt="Hello", max_tokens=4, stream=True))
            assert "".join(piece.choices[0].text for piece in pieces if piece.choices)


def the_usage_chunk_ends_a_stream():
    with simulated() as api:
        chunks = list(chat(api, max_tokens=8, stream=True, stream_options={"include_usage": True}))
        assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 8, chunks[-1]
        assert all(chunk.usage is None for chunk in chunks[:-1])


def the_raw_answer_has_the_request_id():
    with simulated() as api:
        raw = api.chat.completions.with_raw_response.create(
            model="default", messages=HELLO, max_tokens=1, extra_headers={"X-Request-Id": "mine"}
        )
        assert raw.headers["x-request-id"] == "mine" and raw.parse().choices


CALL = {"id": "call_1", "type": "function", "function": {"name": "rain", "arguments": '{"at": "Bergen"}'}}
TOOLS = [{"type": "function", "function": {"name": "rain", "parameters": {"type": "object", "properties": {}}}}]


def a_tool_call_and_its_result():
    def script(handler, body):
        assert body["tools"] == TOOLS
        if body["messages"][-1]["role"] == "tool":
            message, why = {"role": "assistant", "content": "It rains."}, "stop"
        else:
            message, why = {"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": why}
        answer_json(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    with behind_router(script) as (api, worker):
        first = chat(api, tools=TOOLS).choices[0]
        assert first.finish_reason == "tool_calls" and first.message.content is None
        call = first.message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"at": "Bergen"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "yes"}
        second = chat(api, tools=TOOLS, messages=[*HELLO, first.message, result])
        assert second.choices[0].message.content == "It rains."
        history = json.loads(worker.seen[-1][1])["messages"]
        assert history[1]["tool_calls"] == [CALL], "the history arrives as the client sent it"


def event(end, **chunk):
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **chunk}
    return b"data: " + json.dumps(value).encode() + end


def delta(end, why=None, **what):
    return event(end, choices=[{"index": 0, "delta": what, "finish_reason": why}])


def a_streamed_tool_call_between_comments_whatever_the_line_ends():
    def script(handler, _):
        end = handler.headers["X-End"].encode().decode("unicode_escape").encode()
        part = lambda text, **more: [{"index": 0, "function": {"arguments": text}, **more}]
        name = {"id": "call_1", "type": "function", "function": {"name": "rain", "arguments": ""}, "index": 0}
        whole = b"".join([
            b": a comment" + end,
            delta(end, role="assistant", content=None),
            delta(end, tool_calls=[name]),
            b":" + end,
            delta(end, tool_calls=part('{"at": "K\u00f8ben')),
            b": ping" + end,
            delta(end, tool_calls=part('havn"}')),
            delta(end, "tool_calls"),
            event(end, choices=[], usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}),
            b"data: [DONE]" + end,
        ])
        size = int(handler.headers["X-Size"])
        answer_stream(handler, [whole[at : at + size] for at in range(0, len(whole), size)])

    with behind_router(script) as (api, _):
        for end in ("\\n\\n", "\\r\\n\\r\\n"):
            for size in (1, 13, 100_000):
                stream = chat(api, tools=TOOLS, stream=True, extra_headers={"X-End": end, "X-Size": str(size)})
                text, name, usage = "", None, None
                for chunk in stream:
                    usage = chunk.usage or usage
                    for choice in chunk.choices:
                        for call in choice.delta.tool_calls or []:
                            name = call.function.name or name
                            text += call.function.arguments or ""
                assert (name, json.loads(text)) == ("rain", {"at": "K\u00f8benhavn"}), (end, size, text)
                assert usage.total_tokens == 5


def a_stream_that_breaks_off_raises():
    def script(handler, _):
        answer_stream(handler, [delta(b"\n\n", content="a")], whole=False)

    with behind_router(script) as (api, _):
        stream = chat(api, stream=True)
        assert next(stream).choices[0].delta.content == "a"
        try:
            rest = list(stream)
        except Exception as error:  # The client passes its transport's error on.
            assert "peer closed connection" in str(error) or isinstance(error, openai.APIConnectionError), repr(error)
        else:
            raise AssertionError(f"a clean end after {rest}")


# --- refusals


def a_dead_worker_is_a_502():
    with Router(BINARIES, [dead_url()], "--disable-retries", "--disable-health-check") as router:
        for stream in (False, True):
            refused(
                openai.InternalServerError, 502, "upstream_connect_failed", lambda: chat(client(router), stream=stream)
            )


def no_worker_is_a_503():
    with Router(BINARIES, []) as router:
        for stream in (False, True):
            refused(openai.InternalServerError, 503, "no_workers", lambda: chat(client(router), stream=stream))


def a_late_worker_is_a_504():
    def script(handler, _):
        handler.rfile.read(1)  # Until the router hangs up.
        handler.close_connection = True

    for flag, code in (
        ("--request-timeout-secs", "upstream_timeout"),
        ("--first-byte-timeout-secs", "upstream_first_byte_timeout"),
    ):
        with behind_router(script, flag, "1") as (api, worker):
            for stream in (False, True):
                refused(openai.InternalServerError, 504, code, lambda: chat(api, stream=stream))
            assert len(worker.seen) == 2, "what may have been done is not done again"


def a_long_body_is_a_413():
    with simulated("--instant") as api, Router(BINARIES, [dead_url()], "--max-payload-size", "1000") as router:
        long = [{"role": "user", "content": "x" * 2_000_000}]
        refused(openai.APIStatusError, 413, "payload_too_large", lambda: chat(client(router), messages=long))
        assert chat(api, messages=long, max_tokens=1).choices, "by default it is none"


def a_full_router_is_a_429():
    begun, go = threading.Event(), threading.Event()

    def script(handler, _):
        begun.set()
        go.wait(20)
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        answer_json(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    with behind_router(script, "--max-concurrent-requests", "1", "--queue-size", "0") as (api, _):
        answers = []
        first = threading.Thread(target=lambda: answers.append(chat(api)))
        first.start()
        assert begun.wait(20)
        for stream in (False, True):
            error = refused(openai.RateLimitError, 429, "queue_full", lambda: chat(api, stream=stream))
            assert int(error.response.headers["retry-after"]) >= 1
        go.set()
        first.join()
        assert answers[0].choices


def an_unknown_model_is_a_404():
    with Scripted(None, "a") as a, Scripted(None, "b") as b, Router(BINARIES, [a.url, b.url]) as router:
        api = client(router)
        deadline = time.monotonic() + 20
        while True:
            # Until both have said what they serve, the request is theirs to refuse.
            try:
                refused(openai.NotFoundError, 404, "model_not_found", lambda: chat(api, model="c"))
                break
            except (AssertionError, openai.APIError):
                assert time.monotonic() < deadline
                time.sleep(0.1)


def a_wrong_key_is_a_401():
    with Router(BINARIES, [dead_url()], "--api-key", "sk-router") as router:
        for stream in (False, True):
            refused(openai.AuthenticationError, 401, "invalid_api_key", lambda: chat(client(router), stream=stream))


def a_workers_refusal_arrives_as_it_is():
    def script(handler, _):
        error = {"message": "too long for the model", "type": "BadRequestError", "param": None, "code": 400}
        answer_json(handler, 400, {"object": "error", **error, "error": error})

    with behind_router(script) as (api, worker):
        for _ in range(20):
            try:
                chat(api)
                raise AssertionError("no refusal")
            except openai.BadRequestError as error:
                assert "too long for the model" in str(error)
        assert len(worker.seen) == 20


def the_clients_retries_and_the_routers_do_not_multiply_without_bound():
    def script(handler, _):
        answer_json(handler, 503, {"error": {"message": "full", "type": "overloaded"}}, Retry_After="1")

    with behind_router(script, "--retry-max-backoff-ms", "100") as (api, worker):
        try:
            chat(api.with_options(max_retries=2))
            raise AssertionError("no refusal")
        except openai.InternalServerError as error:
            assert error.status_code == 503 and error.response.headers["retry-after"] == "1"
            assert "full" in str(error)
        assert len(worker.seen) == 3, f"{len(worker.seen)}: a worker that says when is not asked before"


ROUND_TRIPS = [
    an_answer_in_one_piece,
    an_answer_as_a_stream,
    the_usage_chunk_ends_a_stream,
    the_raw_answer_has_the_request_id,
    a_tool_call_and_its_result,
    a_streamed_tool_call_between_comments_whatever_the_line_ends,
    a_stream_that_breaks_off_raises,
    a_dead_worker_is_a_502,
    no_worker_is_a_503,
    a_late_worker_is_a_504,
    a_long_body_is_a_413,
    a_full_router_is_a_429,
    an_unknown_model_is_a_404,
    a_wrong_key_is_a_401,
    a_workers_refusal_arrives_as_it_is,
    the_clients_retries_and_the_routers_do_not_multiply_without_bound,
]


def main():
    print(f"openai {openai.__version__}")
    failed = 0
    for round_trip in ROUND_TRIPS:
        try:
            round_trip()
            print(f"ok      {round_trip.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {round_trip.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{len(ROUND_TRIPS) - failed} of {len(ROUND_TRIPS)} round trips")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
