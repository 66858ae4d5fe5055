"""A webhook for gates of UpgradePolicies: it asks the pending cluster as a client would, and judges the answers; runs in a pod.

Before the first traffic it asks the preview Service once; at a step it asks the pending cluster each 5 s for `WATCHED` seconds. An answer of
another model fails the gate. A question without a valid signature of KEY gets 401, which is no answer to raybus. One JSON line a question.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

KEY = base64.b64decode(os.environ["KEY"].removeprefix("whsec_"))
SAMPLES = 20
WATCHED = 20.0
OLDEST = 300.0
first_asked: dict[str, float] = {}
"""By the id of a question, which stays the same at one step."""


class Judge(BaseHTTPRequestHandler):
    """Answers `Pass`, `Fail` or `Wait`."""

    def do_POST(self) -> None:
        """Answer one question."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_signed(self.headers, body):
            print(json.dumps({"at": time.time(), "is_signed": False}), flush=True)
            self.send_error(401)
            return
        question = json.loads(body)
        role = "pending" if question["weight"] else "preview"
        result, text = judged(question, question["addresses"][role])
        line = {
            "result": result,
            "text": text,
            "weight": question["weight"],
            "cluster": question["pendingCluster"],
        }
        print(json.dumps({"at": time.time(), "is_signed": True, "asked": role, **line}), flush=True)
        self.answer(json.dumps({"result": result, "text": text}).encode())

    def answer(self, body: bytes) -> None:
        """Send an answer."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "5")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing beside the lines."""


def judged(question: dict, address: str) -> tuple[str, str]:
    """Return the result of a question, and its text."""
    since = first_asked.setdefault(question["id"], time.monotonic())
    try:
        models = [model_of(address) for _ in range(SAMPLES)]
    except (OSError, ValueError) as problem:
        return "Wait", f"{address} does not answer yet: {type(problem).__name__}"
    wrong = sum(model != "right" for model in models)
    if wrong:
        return "Fail", f"{wrong} of {SAMPLES} answers are another model's"
    is_long_enough = not question["weight"] or time.monotonic() - since >= WATCHED
    return "Pass" if is_long_enough else "Wait", f"{SAMPLES} of {SAMPLES} answers are right"


def model_of(address: str) -> str:
    """Return the model that answers."""
    with urlopen(f"http://{address}/", timeout=3) as answer:
        return json.load(answer)["model"]


def is_signed(headers: object, body: bytes) -> bool:
    """Return whether a question has a signature of the key, and is not an old one."""
    seconds = headers.get("webhook-timestamp", "0")
    text = f"{headers.get('webhook-id', '')}.{seconds}.".encode() + body
    wanted = base64.b64encode(hmac.new(KEY, text, hashlib.sha256).digest()).decode()
    found = headers.get("webhook-signature", "").split(" ")
    is_recent = seconds.isdigit() and abs(time.time() - int(seconds)) < OLDEST
    return is_recent and any(hmac.compare_digest(each, f"v1,{wanted}") for each in found)


if __name__ == "__main__":
    ThreadingHTTPServer(("", 8080), Judge).serve_forever()
