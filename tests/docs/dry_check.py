"""Looks at blocks that CI cannot run: their syntax, and that the commands, options, files and targets that they name exist."""
import ast
import json
import pathlib
import re
import shlex
import subprocess
import tomllib

import pages

OPTION = re.compile(r"--[a-z][\w-]*")
CONNECTORS = {"&&", "||", "|", ";", "&"}


class DryCheck:
    def __init__(self, source, build, program):
        self.source, self.program = pathlib.Path(source), program
        self.targets = set(re.findall(r"^build (?:bin/)?([\w-]+):", (pathlib.Path(build) / "build.ninja").read_text(), re.MULTILINE))
        self.helps = {}
        listed = subprocess.run([program, "networks"], capture_output=True, text=True, check=True).stdout
        self.networks = {line.split()[0] for line in listed.splitlines() if line.strip()}

    def problems(self, block):
        """Sentences on what is wrong."""
        if block.language in pages.SHELLS:
            return [found for command in pages.commands(block) for found in self.of_command(command.text)]
        parsers = {"python": ast.parse, "json": json.loads, "toml": tomllib.loads}
        if block.language not in parsers:
            return [f"nothing looks at {block.language} that is not run"]
        try:
            parsers[block.language](block.text)
        except (SyntaxError, ValueError) as error:
            return [str(error)]
        return []

    def of_command(self, text):
        syntax = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
        if syntax.returncode != 0:
            return [syntax.stderr.strip()]
        found, simple = [], []
        for word in shlex.split(text.replace("\\\n", " ")) + [";"]:
            if word not in CONNECTORS:
                simple.append(word)
            elif simple:
                found += self.of_simple_command([one for one in simple if not re.match(r"[A-Z_]+=", one)])
                simple = []
        return found

    def of_simple_command(self, words):
        found = [f"there is no {word}" for word in words
                 if re.match(r"(bench|deploy|tests|examples)/", word) and not (self.source / word).exists()]
        if pathlib.PurePath(words[0]).name == "diapason":
            found += self.of_program(words[1:])
        elif words[0].startswith("build/bin/"):
            found += self.of_targets([words[0].removeprefix("build/bin/")])
        elif words[:4] == ["cmake", "--build", "build", "--target"]:
            found += self.of_targets(words[4:])
        elif words[:3] == ["ninja", "-C", "build"]:
            found += self.of_targets(words[3:])
        elif (self.source / words[0]).is_file():
            texts = self.texts_of_script(words[0])
            found += [f"{words[0]} has no {word}" for word in words if OPTION.fullmatch(word) and not re.search(rf"{word}\b", texts)]
        return found

    def texts_of_script(self, name):
        """Of a script, and of the one beside it that it hands its arguments to."""
        script = self.source / name
        text = script.read_text()
        return text + "".join((script.parent / other).read_text() for other in re.findall(r'exec python3 .*/([\w.]+)" "\$@"', text))

    def of_targets(self, names):
        return [f"there is no target {name}" for name in names if name not in self.targets]

    def of_program(self, words):
        found, command = [], []
        for word in words:  # `jobs list|show`: each of them
            names = word.split("|")
            known = self.subcommands(tuple(command))
            if not known:
                break
            found += [f"there is no `diapason {' '.join(command + [name])}`" for name in names if name not in known]
            if found:
                return found
            command.append(names[0])
        taken = OPTION.findall(self.help(tuple(command))) + self.options_of_network(words[len(command):])
        return [f"`diapason {' '.join(command)}` has no {word}" for word in words if OPTION.fullmatch(word) and word not in taken]

    def options_of_network(self, words):
        if not words or words[0] not in self.networks:
            return []
        text = subprocess.run([self.program, "networks", words[0]], capture_output=True, text=True, check=True).stdout
        return ["--" + name for name in re.findall(r"^(\w+) +-?\d", text, re.MULTILINE)]

    def help(self, command):
        if command not in self.helps:
            self.helps[command] = subprocess.run([self.program, *command, "--help"], capture_output=True, text=True, check=True).stdout
        return self.helps[command]

    def subcommands(self, command=()):
        """Names of the commands below one."""
        text = self.help(command)
        section = re.search(r"^(?:Subcommands|SUBCOMMANDS):\n((?:  .*\n|\n)*)", text, re.MULTILINE)
        return re.findall(r"^  (\S+)", section.group(1), re.MULTILINE) if section else []
