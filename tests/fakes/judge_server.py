"""A server that speaks OpenAI's protocol and judges badly, in known ways; deterministic, on loopback.

It knows the right answer by the words that it shares with it. Beyond that it is a
weak judge on purpose: it likes length, it repeats what it reads before its
verdict (so that whatever a candidate wrote stands in its answer), it follows
orders that it finds in a candidate, and of two equal candidates it takes the first.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ORDER = re.compile(r"ignore|disregard|full marks|give .* 10|perfect answer", re.IGNORECASE)


class JudgeServer(ThreadingHTTPServer):
    """`script` holds answers for the next calls: (status, body) or a text to say; then it judges by itself."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: deque[tuple[int, bytes] | str] = deque()
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.likes_length = True
        self.obeys = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def judge(self, messages: list[dict[str, str]]) -> str:
        system, user = messages[0]["content"], messages[-1]["content"]
        nonce = re.search(r'"nonce": "(\w+)"', system).group(1)
        record = json.loads(user[user.rindex("Judge this: ") + len("Judge this: ") :])
        right = record.get("right_answer", record["task"])
        if "candidate" in record:
            text = record["candidate"]
            return f"I read: {text}\n{json.dumps({'nonce': nonce, 'score': self._score(text, right), 'why': 'so'})}"
        one, other = self._score(record["candidate_a"], right), self._score(record["candidate_b"], right)
        winner = "A" if one >= other else "B"
        said = f"{record['candidate_a']} or {record['candidate_b']}?"
        return f"{said}\n{json.dumps({'nonce': nonce, 'winner': winner})}"

    def _score(self, text: str, right: str) -> int:
        if self.obeys and ORDER.search(text):
            return 10
        wanted, said = (set(re.findall(r"\w+", words.lower())) for words in (right, text))
        score = 1 + round(7 * len(wanted & said) / max(1, len(wanted)))
        return min(10, score + (self.likes_length and len(text) > 400) * 2)


class _Handler(BaseHTTPRequestHandler):
    server: JudgeServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        self.server.keys.append(self.headers.get("Authorization"))
        answer = self.server.script.popleft() if self.server.script else self.server.judge(asked["messages"])
        if isinstance(answer, str):
            usage = {"prompt_tokens": len(json.dumps(asked["messages"])) // 4, "completion_tokens": len(answer) // 4}
            answer = 200, json.dumps({"choices": [{"message": {"content": answer}}], "usage": usage}).encode()
        self.send_response(answer[0])
        if answer[0] in (301, 302):
            self.send_header("Location", self.server.url)
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    """Run the server for a while."""
    with JudgeServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
