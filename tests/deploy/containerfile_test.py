"""deploy/Containerfile without a container engine: what it names must be there, and what is no source stays out of its context."""

import os
import pathlib
import re
import tempfile
import unittest

from commands import run

SOURCE = pathlib.Path(os.environ["DIAPASON_SOURCE"])
BUILD = pathlib.Path(os.environ["DIAPASON_BUILD"])
TEXT = re.sub(r"\\\n", " ", (SOURCE / "deploy/Containerfile").read_text())


def patterns(name):
    return [line for line in (SOURCE / name).read_text().splitlines() if line and not line.startswith("#")]


class Containerfile(unittest.TestCase):
    def test_it_builds_targets_that_there_are(self):
        (named,) = re.findall(r"cmake --build build --target ([\w ]+)", TEXT)
        targets = set(re.findall(r"^build ([\w-]+): phony", (BUILD / "build.ninja").read_text(), re.MULTILINE))
        self.assertGreater(len(named.split()), 1)
        self.assertEqual([name for name in named.split() if name not in targets], [])

    def test_it_copies_and_installs_what_there_is(self):
        for name in re.findall(r"^COPY (?!--)(\S+) ", TEXT, re.MULTILINE):
            self.assertTrue((SOURCE / name).exists(), name)
        packages = re.findall(r'PACKAGE_NAME "(\S+)"', (BUILD / "CPackConfig.cmake").read_text())
        installed = re.findall(r"/packages/([\w-]+)_\*\.deb", TEXT)
        self.assertEqual(installed, ["diapason", "libdiapason-runtime1"])
        self.assertEqual([name for name in installed if name not in packages], [])

    def test_its_context_has_neither_what_git_ignores_nor_git_itself(self):
        left_out = patterns("deploy/Containerfile.dockerignore")
        for pattern in patterns(".gitignore"):
            anywhere = "" if pattern.startswith("/") else "**/"
            self.assertIn(anywhere + pattern.strip("/"), left_out)
        for name in (".git", ".ccache", "shared"):
            self.assertIn(name, left_out)


class Commit(unittest.TestCase):
    def header(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", f"-DSOURCE={folder}", f"-DOUT={folder}/commit.h", "-P", SOURCE / "cmake/commit.cmake",
                env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": "/", **environment})
            return re.search(r'kCommit\[\] = "(.*)"', pathlib.Path(folder, "commit.h").read_text()).group(1)

    def test_sources_without_git_have_the_commit_that_is_given(self):
        self.assertEqual(self.header(DIAPASON_COMMIT="0123456789ab-dirty"), "0123456789ab-dirty")
        self.assertEqual(self.header(DIAPASON_COMMIT="\"; evil"), "unknown")
        self.assertEqual(self.header(), "unknown")


if __name__ == "__main__":
    unittest.main()
