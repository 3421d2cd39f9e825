"""The client of OpenAI-compatible servers: failures have kinds, passing ones are tried again, the key stays with us."""

import socket
import threading

import pytest

from geartrain.completions import CompletionError, Server, key_from
from geartrain.errors import UserError
from tests.fakes.judge_server import judge_server

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
def server():
    with judge_server() as running:
        yield running


def _client(server, **options):
    pauses = []
    return Server(server.url, "small", pause=pauses.append, **options), pauses


def test_a_passing_failure_is_tried_again_with_longer_pauses(server):
    server.script.extend([(503, b""), (429, b""), "well"])
    client, pauses = _client(server, tries=4, backoff=0.5)
    found = client.complete(MESSAGES, temperature=0)
    assert (found.text, found.tries, pauses) == ("well", 3, [0.5, 1.0])
    assert found.tokens_in > 0
    assert found.tokens_out == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((401, b"who are you"), "refused"),
        ((302, b""), "refused"),  # a detour would take the key elsewhere
        ((200, b"no json"), "no_completion"),
        ((200, b'{"choices": [{"message": {"content": null}}]}'), "no_completion"),
        ((200, b'{"choices": [{"message": "x"}]}'), "no_completion"),
        ((200, b"[" * 100_000), "no_completion"),
    ],
)
def test_a_failure_that_stays_is_not_tried_again(server, answer, kind):
    server.script.extend([answer, "never asked"])
    client, pauses = _client(server, tries=3)
    with pytest.raises(CompletionError) as caught:
        client.complete(MESSAGES)
    assert (caught.value.kind, caught.value.tries, pauses) == (kind, 1, [])
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_fails_after_its_tries(server):
    client, pauses = _client(server, tries=2)
    client = Server("http://127.0.0.1:1/v1", "small", tries=2, pause=pauses.append)
    with pytest.raises(CompletionError) as caught:
        client.complete(MESSAGES)
    assert (caught.value.kind, caught.value.tries, len(pauses)) == ("unreachable", 2, 1)


def test_a_server_that_is_silent_and_one_that_drips_both_time_out():
    def drip(connection):
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not over.wait(0.02):
                    connection.sendall(b" ")
            except OSError:
                return

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as dripping:
        thread = threading.Thread(target=lambda: drip(dripping.accept()[0]))
        thread.start()
        for listening in (silent, dripping):
            client = Server(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "small", timeout=0.2)
            with pytest.raises(CompletionError) as caught:
                client.complete(MESSAGES)
            assert caught.value.kind == "timeout"
        over.set()
        thread.join()


def test_the_key_comes_from_the_environment_or_a_file_and_is_never_shown(server, tmp_path):
    file = tmp_path / "key"
    file.write_text("from-a-file\n")
    assert key_from("JUDGE_KEY", {"JUDGE_KEY": "sesame"}) == "sesame"
    assert key_from("JUDGE_KEY", {"JUDGE_KEY": "sesame", "JUDGE_KEY_FILE": str(file)}) == "from-a-file"
    assert key_from("JUDGE_KEY", {}) == ""
    with pytest.raises(UserError, match="JUDGE_KEY_FILE"):
        key_from("JUDGE_KEY", {"JUDGE_KEY_FILE": str(tmp_path / "none")})
    client, _ = _client(server, key="sesame")
    server.script.append((401, b"sesame is wrong"))
    with pytest.raises(CompletionError) as caught:
        client.complete(MESSAGES)
    assert server.keys == ["Bearer sesame"]
    assert "sesame" not in f"{client!r} {caught.value}"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://me:secret@host/v1", "host:80"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(url):
    with pytest.raises(ValueError, match="address"):
        Server(url, "small")
