"""A small OpenAI-compatible server around a target's greedy text; answers as vLLM, or as servers without ids."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dflash.data.samples import render
from dflash.target.greedy import greedy

EXTRAS = {"return_token_ids", "skip_special_tokens"}


class ReferenceServer(ThreadingHTTPServer):
    """`gives_ids` False: as `transformers serve` (no ids, unknown fields refused). `thinking`: forced template."""

    def __init__(self, target: Any, tokenizer: Any, *, gives_ids: bool, thinking: bool | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.tokenizer = target, tokenizer
        self.gives_ids, self.thinking = gives_ids, thinking
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.fail_on: set[str] = set()
        self.fail_with = 500
        self.appends: list[int] = []
        self.says: str | None = None
        self.finish_reason: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: ReferenceServer

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "toy"}]})

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((self.path, body))
        if not server.gives_ids and EXTRAS & body.keys():
            return self._answer({"error": "unexpected field"}, 422)
        if "messages" in body:
            thinking = server.thinking
            if thinking is None:
                thinking = body["chat_template_kwargs"]["enable_thinking"]
            ids = render(server.tokenizer, body["messages"], thinking)
            if any(word in body["messages"][0]["content"] for word in server.fail_on):
                return self._answer({"error": "out of luck"}, server.fail_with)
        else:
            ids = body["prompt"]
        new = greedy(server.target, ids, body["max_tokens"] - len(server.appends), [258]) + server.appends
        text = server.says or server.tokenizer.decode(new)
        choice: dict[str, Any] = {
            "finish_reason": server.finish_reason or ("stop" if new[-1] == 258 else "length")
        }
        choice |= {"message": {"content": text}} if "messages" in body else {"text": text}
        document: dict[str, Any] = {"choices": [choice]}
        if server.gives_ids:
            choice["token_ids"] = new
            document["prompt_token_ids"] = ids
        return self._answer(document)

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(server: ReferenceServer) -> Iterator[ReferenceServer]:
    """Serve in a thread for as long as the block lasts."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
