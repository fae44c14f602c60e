"""References from an OpenAI-compatible server (SGLang, vLLM, transformers serve): greedy, ids asked for.

Chat turns are sent as messages with the thinking flag explicit; where the server returns the prompt's ids,
they are held against our own rendering of the template. A server that returns no ids gives text, which is
encoded again: counted, and a caveat. Standard library only, Python 3.8: the preflight asks for the model.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from refusal import Refused

# Fields beyond OpenAI's; servers that refuse unknown ones are asked again without them.
EXTRAS = {"return_token_ids": True, "skip_special_tokens": False}

# A server that is shut down may still answer, with half a text.
BROKEN_OFF = ("abort", "error")


class Answer(NamedTuple):
    """Response ids (None: the server gave none), text, the server's own prompt ids, and whether it ended."""

    ids: Optional[List[int]]
    text: str
    prompt_ids: Optional[List[int]]
    finished: bool


class Api:
    """A server's base URL (".../v1"), with one model."""

    def __init__(self, url: str, timeout: float = 600.0, model: Optional[str] = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise Refused("--api {!r} is not an http(s) URL".format(url))
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._model = model
        self._checked = False
        self._extras = dict(EXTRAS)  # type: Dict[str, Any]

    def models(self, timeout: float = 10.0) -> List[str]:
        """Names of the models that it serves."""
        document = self._request("/models", None, timeout)
        return [str(entry.get("id")) for entry in document.get("data", [])]

    @property
    def model(self) -> str:
        """The model asked for, or the one that is served; two of them must be told apart by --api-model.

        Asked once: a question beside every answer is a load of its own on a server with many clients.
        """
        if self._model is not None and self._checked:
            return self._model
        served = self.models()
        if self._model is None:
            if len(served) != 1:
                raise Refused(
                    "{} serves {}".format(self.url, served or "no model"), "choose with --api-model"
                )
            self._model = served[0]
        elif served and self._model not in served:
            raise Refused("{} serves {}, not {}".format(self.url, served, self._model))
        self._checked = True
        return self._model

    def chat(
        self,
        messages: List[Dict[str, str]],
        max_new_tokens: int,
        thinking: bool,
        sampling: Optional[Dict[str, Any]] = None,
    ) -> Answer:
        """Answer a conversation."""
        body = {
            "messages": messages,
            "chat_template_kwargs": {"enable_thinking": thinking},
            "max_tokens": max_new_tokens,
            **(sampling or {}),
        }
        return self._complete(
            "/chat/completions", body, lambda choice: choice["message"].get("content") or ""
        )

    def complete(
        self, prompt_ids: List[int], max_new_tokens: int, sampling: Optional[Dict[str, Any]] = None
    ) -> Answer:
        """Continue token ids."""
        body = {"prompt": prompt_ids, "max_tokens": max_new_tokens, **(sampling or {})}
        return self._complete("/completions", body, lambda choice: choice.get("text") or "")

    def _complete(self, path: str, body: Dict[str, Any], text_of: Callable[[Dict[str, Any]], str]) -> Answer:
        body = {"model": self._model or self.model, "temperature": 0, "n": 1, "stream": False, **body}
        try:
            document = self._request(path, {**body, **self._extras}, self.timeout)
        except Refused as refused:
            if not self._extras or "HTTP 4" not in refused.what:
                raise
            document = self._request(path, body, self.timeout)
            self._extras = {}
        try:
            choice = document["choices"][0]
            ids = choice.get("token_ids") or choice.get("output_ids")
            prompt_ids = choice.get("prompt_token_ids") or document.get("prompt_token_ids")
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise Refused("{}{}: the server broke the answer off ({})".format(self.url, path, reason))
            return Answer(_ints(ids), text_of(choice), _ints(prompt_ids), reason not in ("length", None))
        except (KeyError, IndexError, TypeError) as error:
            raise Refused("{}{}: an answer of unknown shape ({!r})".format(self.url, path, error)) from None

    def _request(self, path: str, body: Optional[Dict[str, Any]], timeout: float) -> Dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - http(s) only, checked above
            self.url + path, data, {"Content-Type": "application/json", "Authorization": "Bearer none"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:  # noqa: S310
                document = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            detail = error.read(400).decode("utf-8", "replace").strip()
            error.close()
            raise Refused("{}{}: HTTP {}: {}".format(self.url, path, error.code, detail)) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Refused(
                "{}{}: no answer ({})".format(self.url, path, reason), "is the server up, is the port right?"
            ) from None
        except ValueError:
            raise Refused("{}{}: the answer is not JSON".format(self.url, path)) from None
        if not isinstance(document, dict):
            raise Refused("{}{}: the answer is not an object".format(self.url, path))
        return document


def _ints(value: Any) -> Optional[List[int]]:
    return [int(v) for v in value] if value else None
