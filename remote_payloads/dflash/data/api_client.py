"""References from an OpenAI-compatible server (SGLang, vLLM, transformers serve): greedy, ids asked for.

Chat turns are sent as messages with the thinking flag explicit; where the server returns the prompt's ids,
they are held against our own rendering of the template. A server that returns no ids gives text, which is
encoded again: counted, and a caveat. A server that is busy (429, 503) is asked again a few times. Standard
library only, Python 3.8: the preflight asks for the model.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from dflash.errors import Refused

# Fields beyond OpenAI's; servers that refuse unknown ones are asked again without them.
EXTRAS = {"return_token_ids": True, "skip_special_tokens": False}
UNKNOWN_FIELD = (400, 422)
BUSY = (429, 503)
# Seconds waited before a busy server is asked again; it may ask for more itself, within reason.
PAUSES = (1.0, 4.0)
LONGEST_PAUSE = 60.0

# A server that is shut down may still answer, with half a text.
BROKEN_OFF = ("abort", "error")


class Answer(NamedTuple):
    """Response ids (None: the server gave none), text, the server's own prompt ids, and whether it ended."""

    ids: Optional[List[int]]
    text: str
    prompt_ids: Optional[List[int]]
    finished: bool


class Unanswered(Refused):
    """Nothing came back: the server is down, hangs, or hung up."""


class Rejected(Refused):
    """The server answered with an HTTP error."""

    def __init__(self, what: str, hint: Optional[str], status: int, pause: Optional[float]) -> None:
        super().__init__(what, hint)
        self.status, self.pause = status, pause


class Api:
    """A server's base URL (".../v1"), with one model."""

    def __init__(self, url: str, timeout: float = 600.0, model: Optional[str] = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise Refused("--api {!r} is not an http(s) URL".format(url))
        try:
            host = urllib.parse.urlsplit(url).hostname
            urllib.parse.urlsplit(url).port  # noqa: B018 - looked at for its refusal
        except ValueError as error:
            raise Refused("--api {!r}: {}".format(url, error)) from None
        if not host:
            raise Refused("--api {!r} names no host".format(url))
        self.url = url.rstrip("/")
        # A proxy of the environment is for the world outside: it would look for its own loopback.
        self._opener = urllib.request.build_opener(
            *([urllib.request.ProxyHandler({})] if _here(host) else [])
        )
        self.timeout = timeout
        self._model = model
        self._checked = False
        self._extras = dict(EXTRAS)  # type: Dict[str, Any]

    def models(self, timeout: float = 10.0) -> List[str]:
        """Names of the models that it serves."""
        document = self._patiently("/models", None, timeout)
        listed = document.get("data")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise Refused(
                "{}/models: an answer of unknown shape".format(self.url), "is it an OpenAI-compatible server?"
            )
        return [str(entry.get("id")) for entry in listed]

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
            document = self._patiently(path, {**body, **self._extras}, self.timeout)
        except Rejected as rejected:
            if not self._extras or rejected.status not in UNKNOWN_FIELD:
                raise
            document = self._patiently(path, body, self.timeout)
            self._extras = {}
        try:
            choice = document["choices"][0]
            # Not `or`: an empty list is a server that answered with nothing, not one without ids.
            ids = _first(choice.get("token_ids"), choice.get("output_ids"))
            prompt_ids = _first(choice.get("prompt_token_ids"), document.get("prompt_token_ids"))
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise Refused("{}{}: the server broke the answer off ({})".format(self.url, path, reason))
            text = text_of(choice)
            if not isinstance(text, str):
                raise TypeError("its text is no text")
            if ids is None and _reasoning(choice):
                raise Refused(
                    "{}{}: the server keeps the thinking apart from its answer and gives no token ids".format(
                        self.url, path
                    ),
                    "start it without its reasoning parser, or so that it returns token ids",
                )
            return Answer(_ints(ids), text, _ints(prompt_ids), reason not in ("length", None))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise Refused("{}{}: an answer of unknown shape ({!r})".format(self.url, path, error)) from None

    def _patiently(self, path: str, body: Optional[Dict[str, Any]], timeout: float) -> Dict[str, Any]:
        """Ask; and ask again after a pause where the server says that it is busy."""
        for pause in PAUSES:
            try:
                return self._request(path, body, timeout)
            except Rejected as rejected:
                if rejected.status not in BUSY:
                    raise
                time.sleep(min(LONGEST_PAUSE, pause if rejected.pause is None else rejected.pause))
        return self._request(path, body, timeout)

    def _request(self, path: str, body: Optional[Dict[str, Any]], timeout: float) -> Dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - http(s) only, checked above
            self.url + path, data, {"Content-Type": "application/json", "Authorization": "Bearer none"}
        )
        where = self.url + path
        try:
            with self._opener.open(request, timeout=timeout) as reply:
                document = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            raise _rejected(where, error) from None
        except (http.client.HTTPException, OSError) as error:
            raise _unanswered(where, error, timeout) from None
        except (ValueError, RecursionError):
            raise Refused("{}: the answer is not JSON".format(where)) from None
        if not isinstance(document, dict):
            raise Refused("{}: the answer is not an object".format(where))
        return document


def _rejected(where: str, error: urllib.error.HTTPError) -> Rejected:
    """An HTTP error, with what the server says of it."""
    try:
        detail = error.read(400).decode("utf-8", "replace").strip()
    except (http.client.HTTPException, OSError):
        detail = ""
    error.close()
    hints = {
        401: "it wants a key, which this program does not send",
        404: "does the URL end with /v1?",
        429: "it is busy: run this again later",
        503: "it is busy or still loading: run this again later",
    }
    what = "{}: HTTP {}{}".format(where, error.code, ": " + detail if detail else "")
    try:
        pause = max(0.0, float(error.headers.get("Retry-After", "")))
    except (ValueError, TypeError):
        pause = None
    return Rejected(what, hints.get(error.code), error.code, pause)


def _unanswered(where: str, error: Exception, timeout: float) -> Unanswered:
    """Told apart for people: nobody there, somebody who says nothing, somebody who hung up midway."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError) or "timed out" in str(reason):
        return Unanswered("{}: no answer within {:g} s".format(where, timeout), "does the server hang?")
    if isinstance(error, http.client.IncompleteRead):
        return Unanswered("{}: the answer broke off".format(where), "did the server end? its log says why")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return Unanswered(
            "{}: no HTTP answer ({!r})".format(where, error), "is another service on this port?"
        )
    return Unanswered("{}: no answer ({})".format(where, reason), "is the server up, is the port right?")


def _here(host: str) -> bool:
    """Whether a host is this machine, by name or loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _reasoning(choice: Dict[str, Any]) -> bool:
    message = choice.get("message") or {}
    return bool(message.get("reasoning_content") or message.get("reasoning"))


def _ints(value: Any) -> Optional[List[int]]:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
        raise TypeError("token ids that are none")
    return list(value)
