#!/usr/bin/env python3
"""Fails when a class has more than 25 methods or 400 lines: it has more than one responsibility then.

  deploy/check_classes.py [ROOT [--all]]

Methods: the member functions that a class declares, its constructors, destructor and assignments not, nor what is defaulted or deleted. Lines: those
of its definition and of its members that are defined elsewhere. Classes of tests and benchmarks, and those inside functions, are not looked at.
--all prints the counts of every class, the largest first.
"""
import bisect
import collections
import re
import sys

from reporting import report, root_of

METHODS, LINES = 25, 400
FOLDERS = ("api", "base", "cli", "compiler", "costmodel", "db", "examples", "include", "python", "runtime", "scheduler", "service", "ui", "worker")
SUFFIXES = (".h", ".hpp", ".cc", ".cpp")

# What is no code: comments, directives with their continuation lines, and what is in quotes.
BLANK = re.compile(r'//(?:[^\n]*\\\n)*[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"'
                   r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|[0-9][\w.']*|::|->\*?|[<>=!+\-*/%&|^]=|&&|\|\||[^\s\w]")
WORD = re.compile(r"[A-Za-z_]\w*$")
MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*$")  # annotations, which look like functions
CLASSES = ("class", "struct", "union")
PAIRS = {"(": ")", "[": "]", "{": "}"}
NO_NAME = {"alignas", "decltype", "explicit", "noexcept", "requires", "sizeof", "throw", "__attribute__", "static_assert"}


class Class:
    """Counts of one class."""

    def __init__(self, path, name, lines):
        self.path = path
        self.name = name  # with the classes around it, without namespaces
        self.methods = []
        self.lines = lines


class Definition:
    """A member function that is defined outside its class."""

    def __init__(self, path, qualifiers, name, lines):
        self.path = path
        self.qualifiers = qualifiers
        self.name = name
        self.lines = lines


class Source:
    """The classes of a file, and its definitions of members."""

    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        text = BLANK.sub(lambda found: " " + "\n" * found[0].count("\n"), text)
        self.path = path
        self.tokens, places = [], []
        for found in TOKEN.finditer(text):
            self.tokens.append(found[0])
            places.append(found.start())
        breaks = [at for at, letter in enumerate(text) if letter == "\n"]
        self.lines = [bisect.bisect(breaks, place) for place in places]
        self.pair = self.pairs()
        self.classes, self.definitions, self.namespaces = [], [], set()
        self.scope(0, len(self.tokens), None)

    def pairs(self):
        """Where each bracket is closed."""
        pair, open_ = {}, []
        for i, token in enumerate(self.tokens):
            if token in PAIRS:
                open_.append(i)
            elif token in PAIRS.values():
                if not open_ or PAIRS[self.tokens[open_[-1]]] != token:
                    raise ValueError(f"{self.path}:{self.lines[i] + 1}: this {token} closes nothing")
                pair[open_.pop()] = i
        if open_:
            raise ValueError(f"{self.path}:{self.lines[open_[-1]] + 1}: this {self.tokens[open_[-1]]} is not closed")
        return pair

    def angle(self, i):
        """Behind the list of template arguments that begins at i; i + 1 where it is only a "less than"."""
        depth, at = 0, i
        while at < len(self.tokens) and self.tokens[at] not in ";{})]":
            token = self.tokens[at]
            if token in "([":
                at = self.pair[at]
            depth += {"<": 1, ">": -1}.get(token, 0)
            at += 1
            if depth == 0:
                return at
        return i + 1

    def scope(self, i, end, owner):
        """Reads the declarations of a file, a namespace or the class `owner`."""
        while i < end:
            i = self.declaration(i, end, owner)

    def declaration(self, i, end, owner):
        """Reads one declaration; where the next one begins."""
        tokens = self.tokens
        if tokens[i] in ("public", "private", "protected") and tokens[i + 1] == ":":
            return i + 2
        begin = i
        while i < end and tokens[i] == "template":
            i = self.angle(i + 1)
        if i < end and tokens[i] in ("using", "typedef", "friend", "static_assert", "enum", "concept"):
            return self.skip(i, end)
        if i < end and tokens[i] in ("namespace", "extern") or tokens[i:i + 2] == ["inline", "namespace"]:
            at = next(at for at in range(i, end) if tokens[at] in "{;(=")
            if tokens[at] == "{":
                self.namespaces.update(tokens[i + 1:at])
                self.scope(at + 1, self.pair[at], None)
                return self.pair[at] + 1
            return self.skip(i, end)
        if i < end and tokens[i] in CLASSES:
            after = self.class_(begin, i, end, owner)
            if after is not None:
                return after
        return self.member(begin, i, end, owner)

    def skip(self, i, end):
        """Behind the declaration: its semicolon, or the body of a friend."""
        while i < end and self.tokens[i] != ";":
            if self.tokens[i] in PAIRS:
                is_body = self.tokens[i] == "{" and self.tokens[i - 1] in (")", "const", "noexcept")
                i = self.pair[i]
                if is_body:
                    return i + 1
            i += 1
        return i + 1

    def class_(self, begin, i, end, owner):
        """Reads a class that is defined here; None where it is only named."""
        tokens, names, at = self.tokens, [], i + 1
        while at < end and tokens[at] not in (";", "{", ":", "=", ")"):
            if tokens[at] == "(" and not MACRO.match(tokens[at - 1]) and tokens[at - 1] != "alignas":
                return None  # a function that returns one
            if tokens[at] in ("(", "["):
                at = self.pair[at]
            elif tokens[at] == "<":
                at = self.angle(at) - 1
            elif tokens[at] == "::":
                names[-1] += "::"
            elif WORD.match(tokens[at]) and tokens[at] != "final":
                if names and names[-1].endswith("::"):
                    names[-1] += tokens[at]
                else:
                    names.append(tokens[at])
            elif tokens[at] in "*&":
                return None
            at += 1
        while at < end and tokens[at] not in (";", "{"):
            at = self.angle(at) if tokens[at] == "<" else at + 1  # bases
        if at >= end or tokens[at] == ";":
            return None
        name = names[-1] if names else ""
        own = Class(self.path, f"{owner.name}::{name}" if owner else name, self.lines[self.pair[at]] - self.lines[begin] + 1)
        self.classes.append(own)
        self.scope(at + 1, self.pair[at], own)
        return self.skip(self.pair[at] + 1, end)

    def member(self, begin, i, end, owner):
        """Reads a function, a variable or a member of a class."""
        tokens, name, is_value = self.tokens, None, False
        while i < end and tokens[i] != ";":
            token = tokens[i]
            if token == "operator" and name is None:
                name = i
                i += 3 if tokens[i + 1:i + 3] in (["(", ")"], ["[", "]"]) else 1
                while tokens[i] != "(":
                    i += 1
                i = self.pair[i] + 1
            elif token == "<" and name is None and WORD.match(tokens[i - 1]):
                i = self.angle(i)
            elif token == "(":
                before = tokens[i - 1]
                named = name is None and not is_value and (WORD.match(before) or before == ">")
                if named and not MACRO.match(before) and before not in NO_NAME and tokens[i + 1] not in ("*", "&"):
                    name = i - 1
                i = self.pair[i] + 1
            elif token == ":" and name is not None:
                i = self.initializers(i + 1)
            elif token == "{":
                i = self.pair[i] + 1
                if name is not None and not is_value:
                    self.function(begin, name, i - 1, owner)
                    return i
            elif token == "=" and name is None or token == "[":
                is_value = is_value or token == "="
                i = self.pair[i] + 1 if token == "[" else i + 1
            elif token == "=":
                if tokens[i + 1] in ("default", "delete"):
                    name, is_value = None, True
                i += 1
            else:
                i += 1
        if name is not None and not is_value:
            self.function(begin, name, i, owner)
        return i + 1

    def initializers(self, i):
        """Behind the initializers of a constructor's members: where its body begins."""
        while True:
            while self.tokens[i] not in ("(", "{"):
                i = self.angle(i) if self.tokens[i] == "<" else i + 1
            i = self.pair[i] + 1
            if self.tokens[i] == "...":
                i += 1
            if self.tokens[i] != ",":
                return i
            i += 1

    def function(self, begin, name, last, owner):
        """Counts a function that begins, has its name and ends at these tokens."""
        tokens, word, qualifiers = self.tokens, self.tokens[name], []
        if tokens[name - 1] == "~":
            name, word = name - 1, "~" + word
        if word == "operator":
            word += "()" if tokens[name + 1] == "(" else tokens[name + 1]
        while tokens[name - 1] == "::" and name >= 2:
            name -= 2
            if tokens[name] == ">":
                depth = 1
                while depth > 0:
                    name -= 1
                    depth += {">": 1, "<": -1}.get(tokens[name], 0)
                name -= 1
            if not WORD.match(tokens[name]):
                break
            qualifiers.insert(0, tokens[name])
        if owner is not None:
            if not special(word, owner.name.rsplit("::", 1)[-1]):
                owner.methods.append(word)
        elif qualifiers:
            self.definitions.append(Definition(self.path, qualifiers, word, self.lines[last] - self.lines[begin] + 1))


def special(name, class_name):
    """Whether it is a constructor, the destructor or an assignment."""
    return name in (class_name, "~" + class_name, "operator=")


def owner_of(definition, by_name):
    """The class of a member: one of its file, else of its folder, else of the nearest header with a class of this name."""
    for skipped in range(len(definition.qualifiers)):
        found = by_name.get("::".join(definition.qualifiers[skipped:]), [])
        if found:
            def distance(other):
                common = sum(1 for a, b in zip(other.path.parts, definition.path.parts) if a == b)
                return (other.path != definition.path, other.path.suffix not in (".h", ".hpp"), -common)
            return min(found, key=distance)
    return None


def read(root):
    """All classes, with the lines of their members, and the definitions of members of no class."""
    sources = [Source(path) for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
    by_name = collections.defaultdict(list)
    for source in sources:
        for class_ in source.classes:
            by_name[class_.name].append(class_)
    namespaces = set().union(*(source.namespaces for source in sources))
    lost = []
    for source in sources:
        for definition in source.definitions:
            owner = owner_of(definition, by_name)
            if owner is None and definition.qualifiers[-1] not in namespaces:
                lost.append(definition)
            elif owner is not None:
                owner.lines += definition.lines
    return [class_ for source in sources for class_ in source.classes], lost


def problems(root):
    classes, lost = read(root)
    found = [f"{definition.path.relative_to(root)} defines {'::'.join(definition.qualifiers)}::{definition.name}, of whose class there is no definition: "
             "correct deploy/check_classes.py" for definition in lost]
    large = [class_ for class_ in classes if len(class_.methods) > METHODS or class_.lines > LINES]
    return found + sorted(f"{class_.path.relative_to(root)} {class_.name} has {len(class_.methods)} methods and {class_.lines} lines; {METHODS} and {LINES} are "
                          "allowed: give a part of what it does, with the members that belong to it, to a class of its own" for class_ in large)


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    root = root_of(arguments)
    if "--all" in sys.argv:
        for class_ in sorted(read(root)[0], key=lambda class_: (-len(class_.methods), -class_.lines)):
            print(f"{len(class_.methods):4} methods {class_.lines:5} lines  {class_.path.relative_to(root)} {class_.name}")
        return 0
    return report(problems(root))


if __name__ == "__main__":
    sys.exit(main())
