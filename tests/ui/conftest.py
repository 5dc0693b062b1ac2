"""A small history with hostile texts, a program that serves it, and a browser."""

import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import histories
import pytest

PROGRAM = os.environ["DIAPASON_PROGRAM"]
CHROMIUM = pathlib.Path("/usr/bin/chromium-headless-shell")

# What would run, load or break something if it became markup.
HOSTILE = ["</script><script>window.hurt = 1</script>", "<img src=x onerror='window.hurt = 2'>", "\"'><svg onload=window.hurt=3>",
           "javascript:window.hurt=4", "{{7*7}}${7*7}", "nul\u0000 \u202egnp.exe \u2028 \ufeff 😀"]


class Server:
    """`diapason ARGS` with its page at `url`."""

    def __init__(self, *args):
        self.process = subprocess.Popen([PROGRAM, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.service = None
        self.url = ""
        for line in self.process.stdout:
            if line.startswith("service listens on "):
                self.service = line.split()[3]
            if line.startswith("page at "):
                self.url = line.split()[2]
                break

    def get(self, path, **headers):
        """Status, headers and text; of errors too."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path, **headers):
        status, _, text = self.get(path, **headers)
        assert status == 200, text
        return json.loads(text)

    def stop(self):
        self.process.terminate()
        return self.process.wait(20)


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A line of a record that was really measured."""
    return histories.measured_lines(PROGRAM, str(tmp_path_factory.mktemp("seed")))[0]


@pytest.fixture(scope="session")
def made(base, tmp_path_factory):
    """60 trials of 6 tasks in 2 runs, hostile names, sketches and error texts, and one trial of another network and target."""
    path = tmp_path_factory.mktemp("made") / "h.db"
    maker = histories.Maker(base, network=HOSTILE[0], seed=3)
    lines = list(maker.trials(6, 60))
    for i, text in enumerate(HOSTILE):
        lines.append(maker.trial(100 + i, 0, name=text, sketch=text))
        lines.append(maker.trial(100 + i, 1, name=text, error=("compile", "compile", text)))
    lines[-1]["run"]["command_line"] = HOSTILE[1]
    lines.append(histories.Maker(base, network="another network " * 8, seed=4).trial(200, 0, uuid="e" * 32, target="cpu -num-cores=7"))
    histories.write(PROGRAM, path, lines)
    return path


@pytest.fixture
def history(made, tmp_path):
    """A copy of it for each test."""
    return pathlib.Path(shutil.copy(made, tmp_path / "h.db"))


@pytest.fixture
def server(history):
    started = Server("ui", "--history", history, "--http", "127.0.0.1:0")
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "certs"
    subprocess.run(["bash", os.environ["DIAPASON_MAKE_CERTS"], str(folder)], check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed; deploy/setup.sh installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield started
        started.close()
