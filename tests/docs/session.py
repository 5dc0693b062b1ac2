"""Runs the blocks of a page, in a folder of its own that looks like the top of the sources with a build."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import pages
import prepared
import shapes
from commands import run

SERVERS = re.compile(r"diapason (serve|tracker|worker|ui)\b")  # these run until they are stopped
ADDRESS = re.compile(r"\b(127\.0\.0\.1|gpu-host|HOST):(\d{4,5}|PORT)\b")
COMPONENTS = ("program", "runtime", "development", "tuner", "tuner_development")


def replaced(text, replacements):
    for old, new in replacements:
        text = re.sub(old, new, text)
    return text


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Shared:
    """What the pages have in common, made when it is first asked for."""

    def __init__(self, source, build):
        self.source, self.build = pathlib.Path(source), pathlib.Path(build)
        self.scratch = tempfile.TemporaryDirectory(prefix="diapason_pages_")
        self.folder = pathlib.Path(self.scratch.name)

    def prefix(self):
        """An install tree."""
        prefix = self.folder / "prefix"
        if not prefix.exists():
            for component in COMPONENTS:
                run("cmake", "--install", self.build, "--component", component, "--prefix", prefix)
        return prefix

    def resnet(self):
        """A folder with a history of a small resnet-18, and a package."""
        folder = self.folder / "resnet"
        if not folder.exists():
            folder.mkdir()
            program, model = self.build / "bin/diapason", ["resnet-18", "--set", "image=32", "--target", "cpu", "--history", "h.db", "--no-check"]
            run(program, "tune", *model, "--trials", 8, "--min-repeat-ms", 1, cwd=folder)
            run(program, "build", *model, "--out", "package", cwd=folder)
        return folder


class Session:
    def __init__(self, shared, page, blocks):
        self.shared, self.source, self.page, self.blocks = shared, shared.source, page, blocks
        self.prepared = prepared.page(page)
        self.folder = shared.folder / page.replace("/", "_")
        self.folder.mkdir()
        for name in ("bench", "deploy", "examples", "share", "tests"):
            (self.folder / name).symlink_to(self.source / name)
        (self.folder / "build").symlink_to(shared.build)
        self.environment = {**os.environ, "PATH": f"{shared.build / 'bin'}:{os.environ['PATH']}", "DIAPASON_RECORDS": "",
                            "HOME": str(self.folder), "PYTHONPATH": str(shared.build / "python")}
        self.processes, self.ports, self.record = [], {}, ""
        self.prepared.files(self)

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with process:
                process.communicate(timeout=60)

    def resnet(self):
        return self.shared.resnet()

    def local(self, text):
        """With addresses of this host in the place of the page's: one port for each of them."""
        def address(match):
            if match.group(2) == "PORT":
                return "127.0.0.1:0"
            return f"127.0.0.1:{self.ports.setdefault(match.group(0), free_port())}"
        return ADDRESS.sub(address, text)

    def run(self, block):
        """AssertionError where something does not run, or prints other things than the page."""
        runners = {"c": self.run_c, "cpp": self.run_cpp, "cmake": self.run_cmake, "json": self.run_json, "sql": self.run_sql, "toml": self.run_toml}
        if block.language in pages.SHELLS:
            for command in pages.commands(block):
                self.run_command(command)
        else:
            runners[block.language](block)

    # ---- commands

    def run_command(self, command):
        typed = self.local(replaced(command.text, self.prepared.replacements + prepared.SMALL)).removesuffix("&").rstrip()
        typed = re.sub(r"--record \d+", f"--record {self.record}", typed)
        if SERVERS.match(typed):
            printed = self.start(typed)
        elif typed.startswith("export "):
            printed = ""
            self.environment.update(line.split("=", 1) for line in self.bash(typed + "; env -0").split("\0") if "=" in line)
        else:
            printed = self.bash(typed)
        if re.search(r"\bquery\b", typed):
            self.record = re.search(r"^ *(\d+)\*?  ", printed, re.MULTILINE).group(1)
        if any(line.strip() for line in command.output):
            expected = [replaced(line, self.prepared.replacements + prepared.SMALL) for line in command.output]
            missing = shapes.difference(expected, [line for line in printed.splitlines() if line.strip()])
            if missing is not None:
                raise AssertionError(f"the page shows {missing!r} here, but `{typed}` prints\n{printed}")

    def bash(self, command):
        return run("bash", "-e", "-o", "pipefail", "-c", command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL)

    def start(self, command):
        """A command that runs until the page ends. Returns the first line that it prints, if it prints one."""
        with open(self.folder / f"server{len(self.processes)}.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes.append(process)
        if command.startswith("diapason worker"):
            return ""
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"`{command}` ended:\n{pathlib.Path(log.name).read_text(encoding='utf-8')}")
        return line

    # ---- programs

    def whole(self, text):
        """A piece of a program as a part of one; includes come first."""
        for start, around in self.prepared.around.items():
            if text.startswith(start):
                includes = re.findall(r"^#include .*\n", text, re.MULTILINE)
                return "".join(includes) + around % re.sub(r"^#include .*\n", "", text, flags=re.MULTILINE)
        return text

    def run_c(self, block):
        self.run_installed(block, "program.c", "diapason-runtime", ["cc", "-std=c11", "-Wall", "-Werror"])

    def run_cpp(self, block):
        text = self.whole(block.text)
        if "#include <diapason/" in text:
            self.run_installed(block, "program.cc", "diapason", ["c++", "-std=c++20", "-Wall"])
        else:  # a part of the sources
            (self.folder / "part.cc").write_text(text)
            run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-I{self.source}", f"-I{self.shared.build}", f"-I{self.shared.build}/proto",
                "part.cc", cwd=self.folder)

    def run_installed(self, block, name, package, compiler):
        (self.folder / name).write_text(self.whole(block.text))
        libraries = next(self.shared.prefix().rglob("libdiapason.so")).parent
        environment = {**self.environment, "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "LD_LIBRARY_PATH": str(libraries)}
        flags = run("pkg-config", "--cflags", "--libs", package, env=environment).split()
        run(*compiler, name, *flags, "-o", "program", cwd=self.folder, env=environment)
        run("./program", cwd=self.folder, env=environment)

    def run_cmake(self, block):
        target = re.search(r"target_link_libraries\((\w+)", block.text).group(1)
        project = self.folder / f"project{block.line}"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(prepared.PROJECT % target + block.text)
        run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.shared.prefix()}")
        run("cmake", "--build", project / "build")

    def run_python(self):
        """All blocks of the page, one after the other in one interpreter, each with the lines that it has in the page."""
        program = self.prepared.python
        for block in self.blocks:
            if block.language not in ("python", "pycon") or block.reason:
                continue
            text = block.text
            if block.language == "pycon":
                text = re.sub(r"^(>>>|\.\.\.) ?", "", text, flags=re.MULTILINE)
            text = "\n" * block.line + self.local(replaced(text, prepared.SMALL_PYTHON))
            program += f"exec(compile({text!r}, {block.page!r}, 'exec'), globals())\n"
        (self.folder / "page.py").write_text(program)
        run(sys.executable, "-B", "-W", "ignore", "page.py", cwd=self.folder, env=self.environment)

    # ---- data

    def json(self):
        """The header and the record of an export that the page shows, each in several lines."""
        header, record = [json.loads(one.text) for one in self.blocks if one.language == "json"]
        return header, record

    def import_lines(self, history, lines):
        (self.folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.bash(f"diapason history import {history} lines.jsonl")

    def run_json(self, block):
        header, record = self.json()
        line = json.loads(block.text)
        printed = self.import_lines("json.db", [line])
        if printed != f"imported {'1 record' if line == record else '0 records'}; 0 were there already\n":
            raise AssertionError(printed)
        if line == header:
            return  # exported with the record
        # Its workload is shortened, and names of parameters are written where the workload is known.
        shown = [header, {name: value for name, value in record.items() if name != "configuration"}]
        exported = [json.loads(one) for one in self.bash("diapason history export json.db").splitlines()]
        if exported != shown:
            raise AssertionError(f"the page shows\n{shown}\nand the program writes\n{exported}")

    def run_sql(self, block):
        for statement in re.sub(r"^--.*\n", "", block.text, flags=re.MULTILINE).split(";\n"):
            if statement.strip() and not run("sqlite3", "-readonly", self.folder / "H.db", statement):
                raise AssertionError(f"nothing is selected by {statement}")

    def run_toml(self, block):
        (self.folder / "page.toml").write_text(block.text)
        self.bash("diapason networks --config page.toml")
