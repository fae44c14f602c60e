"""A server that is busy, broken, silent, or no server of this kind is told apart, and never through a proxy."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dflash.data import api_client
from dflash.data.api_client import Api, Rejected, Unanswered
from dflash.errors import Refused

Reply = bytes | Callable[[socket.socket], None]


@contextmanager
def answering(*replies: Reply) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives these raw answers in turn, the last one again and again; its URL and what it was asked."""
    asked: list[bytes] = []
    over = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                if over.is_set():
                    return
                reply = replies[min(len(asked), len(replies) - 1)]
                asked.append(read_request(client))
                if callable(reply):
                    reply(client)
                else:
                    client.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", asked
    finally:
        over.set()
        with socket.create_connection(server.getsockname()[:2]):
            pass
        thread.join()
        server.close()


def read_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


def http(document: Any, status: str = "200 OK", more: str = "", cut: int = 0) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body[: len(body) - cut]


def completion(**choice: Any) -> bytes:
    return http({"choices": [{"text": "ab", "finish_reason": "stop", **choice}], "system_fingerprint": "x"})


def ask(url: str, timeout: float = 20.0) -> api_client.Answer:
    return Api(url, timeout=timeout, model="toy")._complete(
        "/completions", {"model": "toy"}, lambda c: c.get("text") or ""
    )


@pytest.mark.parametrize(
    ("reply", "kind", "what", "hint"),
    [
        (http({"error": "boom"}, "500 Internal Server Error"), Rejected, "HTTP 500: {\"error\": \"boom\"}", ""),
        (http({}, "404 Not Found"), Rejected, "HTTP 404", "/v1"),
        (http({}, "401 Unauthorized"), Rejected, "HTTP 401", "key"),
        (completion()[:-20], Unanswered, "broke off", "log"),
        (http(b'{"choices": [{"text": "a'), Refused, "not JSON", ""),
        (http(b"<html>It works!</html>"), Refused, "not JSON", ""),
        (http([1]), Refused, "not an object", ""),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Unanswered, "no HTTP answer", "another service"),
        (b"", Unanswered, "no answer", "server up"),
        (http({"choices": []}), Refused, "unknown shape", ""),
        (http({"choices": None}), Refused, "unknown shape", ""),
        (http({"choices": ["a"]}), Refused, "unknown shape", ""),
        (http({"error": {"message": "no"}}), Refused, "unknown shape", ""),
        (completion(text=["a"]), Refused, "unknown shape", ""),
        (completion(token_ids=["a"]), Refused, "unknown shape", ""),
        (completion(token_ids=[1, -1]), Refused, "unknown shape", ""),
        (completion(token_ids=7), Refused, "unknown shape", ""),
        (completion(finish_reason="abort"), Refused, "broke the answer off", ""),
        (completion(message={"reasoning_content": "hm"}), Refused, "thinking apart", "reasoning parser"),
    ],
)  # fmt: skip
def test_each_wrong_answer_is_refused_in_its_own_words(
    reply: bytes, kind: type, what: str, hint: str
) -> None:
    with answering(reply) as (url, asked), pytest.raises(kind) as refused:
        ask(url)
    assert what in refused.value.what
    assert hint in (refused.value.hint or "")
    assert url in refused.value.what
    assert len(asked) == 1


def test_a_server_that_hangs_is_given_up_after_the_time_allowed() -> None:
    over = threading.Event()

    def hang(_client: socket.socket) -> None:
        over.wait(20)

    with answering(hang) as (url, _):
        try:
            with pytest.raises(Unanswered, match=r"no answer within 0\.2 s"):
                ask(url, timeout=0.2)
        finally:
            over.set()


def test_an_empty_answer_is_no_missing_list_of_ids() -> None:
    with answering(completion(text="", token_ids=[])) as (url, _):
        assert ask(url).ids == []
    with answering(completion(stop_reason=3, logprobs=None)) as (url, _):
        assert ask(url).ids is None


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_a_busy_server_is_asked_again_with_the_same_fields(status: str) -> None:
    busy = http({"error": "busy"}, status, "Retry-After: 0\r\n")
    with answering(busy, busy, completion(token_ids=[1, 2])) as (url, asked):
        assert ask(url).ids == [1, 2]
    assert len(asked) == 3
    assert all(b'"return_token_ids": true' in request for request in asked), "busy is not: unknown field"


def test_a_server_that_stays_busy_is_named_as_busy(monkeypatch: Any) -> None:
    waited: list[float] = []
    monkeypatch.setattr(api_client.time, "sleep", waited.append)
    busy = http({}, "429 Too Many Requests", "Retry-After: 9999\r\n")
    with answering(busy) as (url, asked), pytest.raises(Rejected, match="HTTP 429") as refused:
        ask(url)
    assert "later" in refused.value.hint
    assert waited == [60.0, 60.0]
    assert len(asked) == 3


def test_unknown_fields_are_left_out_for_good() -> None:
    with answering(http({}, "400 Bad Request"), completion()) as (url, asked):
        api = Api(url, model="toy")
        for _ in range(2):
            api._complete("/completions", {"model": "toy"}, lambda c: c["text"])
    assert [b"return_token_ids" in request for request in asked] == [True, False, False]


@pytest.mark.parametrize("listed", [{"data": "toy"}, {"data": ["toy"]}, {"data": None}, {}])
def test_a_list_of_models_that_is_none_is_refused(listed: Any) -> None:
    with answering(http(listed)) as (url, _), pytest.raises(Refused, match="unknown shape"):
        Api(url).models()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(host: str, monkeypatch: Any) -> None:
    with (
        answering(http({}, "502 Bad Gateway")) as (proxy, through),
        answering(http({"data": [{"id": "toy"}]})) as (url, _),
    ):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert Api(url.replace("127.0.0.1", host)).models() == ["toy"]
        assert through == []
        with pytest.raises(Refused, match="HTTP 502"):
            Api("http://server.example/v1").models()
        assert len(through) == 1


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x/v1", "http:///v1", "http://[::1/v1", "http://x:port/v1"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(Refused, match="--api"):
        Api(url)
