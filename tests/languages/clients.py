"""The programs of the folder `programs`: what each needs, how it is built, started and told what to do.

Everything that is fetched or built is in `build/languages`, and is made again when a program has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

HERE = Path(__file__).parent / "programs"
BUILT = Path(__file__).parents[2] / "build" / "languages"
ANSWER_S = 300.0
"""The SDK with the longest patience tries four times, half a minute apart, and waits a minute each time."""
BUILD_S = 900


_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "Unknown host", "dial tcp", "Connection refused")
"""What the package tools say where there is no network."""


class NotReady(Exception):
    """A program cannot be run here; the text says what is missing."""


class Language(NamedTuple):
    name: str
    client: str
    """The package and its version."""
    tools: tuple[str, ...]
    """Programs that have to be installed."""
    prepare: Callable[[Path], list[str]]
    """Build in this folder, which has the sources; returns the command."""
    reads_unknown_names: bool = True
    """Whether the client takes a connection string with names that are twinbus's own."""
    sources: str = ""
    """Their folder, if it is not called like the language."""
    programs: Path = HERE
    """Where that folder is."""


def _python(program: str) -> Callable[[Path], list[str]]:
    return lambda folder: [sys.executable, str(folder / program)]


def javascript(program: str) -> Callable[[Path], list[str]]:
    def prepare(folder: Path) -> list[str]:
        _run(["npm", "install", "--no-audit", "--no-fund", "--cache", str(BUILT / "npm")], folder)
        return ["node", str(folder / program)]

    return prepare


def go(folder: Path) -> list[str]:
    fetched = BUILT / "go-modules"
    places = {"GOMODCACHE": str(fetched / "modules"), "GOCACHE": str(fetched / "cache"), "GOFLAGS": "-modcacherw"}
    _run(["go", "build", "-o", "client", "."], folder, places)
    return [str(folder / "client")]


def java(main_class: str) -> Callable[[Path], list[str]]:
    def prepare(folder: Path) -> list[str]:
        classpath = folder / "classpath.txt"
        options = ["-q", "-B", f"-Dmaven.repo.local={BUILT / 'maven'}", f"-Dmdep.outputFile={classpath}"]
        _run(["mvn", *options, "compile", "dependency:build-classpath"], folder)
        return ["java", "-cp", f"{folder / 'target' / 'classes'}:{classpath.read_text().strip()}", main_class]

    return prepare


LANGUAGES = {
    language.name: language
    for language in (
        Language("python", "azure-servicebus 7.15", (), _python("sync_client.py")),
        Language("python-aio", "azure-servicebus 7.15, aio", (), _python("aio_client.py"), sources="python"),
        Language("javascript", "@azure/service-bus 7.9.5", ("node", "npm"), javascript("client.js")),
        Language(
            "java", "azure-messaging-servicebus 7.17.10", ("java", "mvn"), java("Client"), reads_unknown_names=False
        ),
        Language("go", "azservicebus 1.11.0", ("go",), go),
        Language("proton", "Qpid Proton (Python) 0.40", (), _python("proton_client.py"), sources="python"),
    )
}


def prepare(language: Language) -> list[str]:
    """The command that runs its program; raises `NotReady`."""
    missing = [tool for tool in language.tools if shutil.which(tool) is None]
    if missing:
        raise NotReady(f"{language.name}: {' and '.join(missing)} not installed")
    sources = language.programs / (language.sources or language.name)
    if not language.tools:
        return language.prepare(sources)
    folder = BUILT / language.name
    stamp = BUILT / f"{language.name}.json"
    with _alone(language):
        wanted = _digest(sources)
        if stamp.exists():
            made = json.loads(stamp.read_text())
            if made["sources"] == wanted:
                return [str(word) for word in made["command"]]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sources, folder)
        command = language.prepare(folder)
        stamp.write_text(json.dumps({"sources": wanted, "command": command}))
    return command


@contextmanager
def _alone(language: Language) -> Iterator[None]:
    """Tests run in several processes; one of them builds."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{language.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(each for each in sources.rglob("*") if each.is_file()):
        digest.update(str(file.relative_to(sources)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if not done.returncode:
        return
    output = (done.stdout + done.stderr)[-2_000:]
    if any(sign in output for sign in _UNREACHABLE):
        raise NotReady(f"{command[0]} cannot reach its package registry")
    raise AssertionError(f"{' '.join(command[:2])} failed: {output}")


class Answer(NamedTuple):
    values: dict[str, Any]

    @property
    def error(self) -> str | None:
        """The kind of error, as the language names it; None: it went well."""
        kind = self.values.get("error")
        return None if kind is None else str(kind)

    @property
    def text(self) -> str:
        return str(self.values.get("text", ""))

    @property
    def seconds(self) -> float:
        return float(self.values["ms"]) / 1000

    @property
    def ids(self) -> list[str]:
        """Of the messages in it."""
        return [str(message["id"]) for message in self.values["messages"]]


class Client:
    """A running program. Its stderr goes to a file, for a look when a test fails."""

    def __init__(self, language: Language, command: list[str], connection_string: str, log: Path) -> None:
        if not language.reads_unknown_names:
            connection_string = connection_string.partition(";Twinbus")[0]
        self.language = language
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"BUS": connection_string},
        )
        self._numbers = count(1)
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """As kill -9 does."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()

    def tell(self, do: str, **arguments: Any) -> int:
        """Give a command without waiting for its answer; returns its number."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        return number

    def answer(self, number: int, within_s: float = ANSWER_S) -> Answer:
        """The answer to the oldest command that has none yet: it has to be this one."""
        try:
            line = self._answers.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"{self.language.name} has not answered within {within_s} s") from None
        assert line, f"{self.language.name} has ended"
        values = json.loads(line)
        assert values["id"] == number
        return Answer(values)

    def ask(self, do: str, within_s: float = ANSWER_S, **arguments: Any) -> Answer:
        return self.answer(self.tell(do, **arguments), within_s)

    def must(self, do: str, **arguments: Any) -> Answer:
        """A command that has to go well."""
        answer = self.ask(do, **arguments)
        assert answer.error is None, f"{self.language.name}: {do}: {answer.error}: {answer.text}"
        return answer


class IdLines(NamedTuple):
    """What a program has written about ids."""

    accepted: list[str]
    failed: dict[str, str]
    """Why, by id."""
    received: list[tuple[str, int]]
    """Ids with the sequence numbers under which they were stored; again if they were delivered again."""
    problems: list[str]

    @property
    def copies(self) -> dict[str, set[int]]:
        """By id: the sequence numbers of all copies of it that were received."""
        found: dict[str, set[int]] = {}
        for each, sequence in self.received:
            found.setdefault(each, set()).add(sequence)
        return found


def read_ids(*files: Path) -> IdLines:
    lines = IdLines([], {}, [], [])
    for file in files:
        for line in file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            kind, _, rest = line.partition(" ")
            first, _, more = rest.partition(" ")
            if kind == "accepted":
                lines.accepted.append(first)
            elif kind == "failed":
                lines.failed[first] = more
            elif kind == "received":
                lines.received.append((first, int(more.split(" ")[0])))
            else:
                lines.problems.append(rest)
    return lines
