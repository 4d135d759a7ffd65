"""`make conformance`, first half: the official Python SDK's own live tests; writes `docs/sdk-suite.md`.

The tests ship inside the source distribution of the SDK. It is downloaded once, and nothing of it is changed or kept
with our files; `stand_ins.py` takes the place of the cloud. With `--through-proxy` each namespace is reached through a
proxy, and that section of the page is written. What fails without a known reason is run again, one test at a time, and
the page says so; `--again` begins there, with the results of the last run. Other arguments are given to pytest, as `-k
session`: then only the result is shown, and the page stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from conformance_clients.clients_page import write_page
from conformance_clients.results import DIRECT, PROXIED, keep_found
from sdk_suite.suite_page import Result, counted, read_page, read_results, run_again, through_proxy, written_page

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "sdk-suite"
RELEASE = "azure-servicebus==7.15.0"
FOLDER = RELEASE.replace("-", "_").replace("==", "-")
PAGE = ROOT / "docs" / "sdk-suite.md"
FILES = (
    *("test_queues.py", "test_sessions.py", "test_subscriptions.py", "test_topic.py", "test_list_sessions.py"),
    *("test_message.py", "test_sb_client.py"),
    *(f"mgmt_tests/test_mgmt_{name}.py" for name in ("queues", "topics", "subscriptions", "rules", "namespaces")),
    "mgmt_tests/test_topic_filter_counts_live.py",
    *(
        f"async_tests/test_{name}_async.py"
        for name in ("queues", "sessions", "subscriptions", "topic", "list_sessions", "sb_client")
    ),
    *(
        f"mgmt_tests/async/test_mgmt_{name}_async.py"
        for name in ("queues", "topics", "subscriptions", "rules", "namespaces")
    ),
)
THROUGH_PROXY, AGAIN = "--through-proxy", "--again"
VARIABLE = "TWINBUS_THROUGH_PROXY"
WORKERS = "8"
"""More than there are cores: these tests sleep most of the time."""
TEST_S = 420
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def main() -> None:
    wishes = [each for each in sys.argv[1:] if each not in (THROUGH_PROXY, AGAIN)]
    is_proxied = THROUGH_PROXY in sys.argv
    tests = fetched()
    results_file = BUILD / f"{'some-' if wishes else ''}results{THROUGH_PROXY if is_proxied else ''}.xml"
    if AGAIN not in sys.argv:
        run(tests, results_file, wishes, is_proxied)
    results = results_in(results_file, is_proxied)
    if not wishes:
        results = with_repeated(tests, results, is_proxied)
        PAGE.write_text(page_with(results, is_proxied), encoding="utf-8")
        keep_found("python", PROXIED if is_proxied else DIRECT, counted(results))
        write_page()
        sys.stdout.write(f"conformance: {PAGE.relative_to(ROOT)} is written\n")
    strange = [result for result in results if result.is_strange]
    for result in strange:
        sys.stdout.write(f"conformance: not as expected: {result.name}: {result.shown}\n")
    sys.exit(1 if strange else 0)


def results_in(file: Path, is_proxied: bool) -> list[Result]:
    if not file.exists():
        sys.exit("conformance: the tests could not be run, see above")
    return read_results(file, is_proxied)


def with_repeated(tests: Path, results: list[Result], is_proxied: bool) -> list[Result]:
    names = {result.name for result in results if result.is_strange}
    if not names:
        return results
    results_file = BUILD / "repeated.xml"
    run(tests, results_file, ["-k", " or ".join(sorted(names))], is_proxied, workers="1")
    return run_again(results, results_in(results_file, is_proxied))


def page_with(results: list[Result], is_proxied: bool) -> str:
    """The page with these results in it. What the other kind of run has written there stays."""
    page = read_page(PAGE.read_text(encoding="utf-8"))
    if is_proxied:
        return page._replace(proxied=through_proxy(results, page.statuses)).text
    return page._replace(direct=written_page(RELEASE, results)).text


def fetched() -> Path:
    """The folder with the SDK's tests, downloaded unless it is there."""
    folder = BUILD / FOLDER
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", RELEASE]
        if subprocess.run([*command, "--dest", str(BUILD)], check=False).returncode:
            sys.exit(f"conformance: {RELEASE} could not be downloaded")
        with tarfile.open(BUILD / f"{FOLDER}.tar.gz") as archive:
            archive.extractall(BUILD, filter="data")
    return folder / "tests"


def run(tests: Path, results_file: Path, wishes: list[str], is_proxied: bool, workers: str = WORKERS) -> None:
    results_file.unlink(missing_ok=True)
    settings = BUILD / "pytest.ini"
    settings.write_text(SETTINGS, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(tests), "-q", "-W", "ignore"),
        *("--noconftest", "-p", "stand_ins", "-p", "no:twinbus", "-p", "no:logging", "-p", "no:cacheprovider"),
        *("--tb=short", "--show-capture=no", "--timeout", str(TEST_S), "-n", workers, "--dist", "worksteal"),
        *(f"--junitxml={results_file}", *wishes, *FILES),
    ]
    environment = {**os.environ, **({VARIABLE: "1"} if is_proxied else {})}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent / "support"), str(tests)])
    subprocess.run(command, cwd=tests, env=environment, check=False)


if __name__ == "__main__":
    main()
