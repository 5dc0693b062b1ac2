"""Code blocks of pages of Markdown, and the rules that they keep.

A block is fenced and names its language. One that CI cannot run has a comment on the line before it that says why:
`<!-- not run: a GPU -->`. Its commands are looked at all the same (dry_check.py).
"""
import dataclasses
import re

FENCE = re.compile(r"( *)```(.*)")
COMMENT = re.compile(r" *<!--(.*)-->")
MARK = re.compile(r" not run: (\S.*) ")
SHELLS = ("console", "sh")
RUN = SHELLS + ("c", "cmake", "cpp", "json", "pycon", "python", "sql", "toml")
FORMS = ("text",)  # drawings, formats and forms of programs: nothing that anybody runs


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    line: int  # of the opening fence
    language: str
    text: str
    comment: str | None = None  # the inside of the comment before it

    @property
    def reason(self):
        """Why it is not run; None if it is."""
        match = MARK.fullmatch(self.comment or "")
        return match.group(1) if match else None

    def __str__(self):
        return f"{self.page}:{self.line}"


def blocks(page, text):
    """The blocks of a page, in order. ValueError where one does not end."""
    found, lines, number = [], text.splitlines(), 0
    while number < len(lines):
        fence = FENCE.fullmatch(lines[number])
        if not fence:
            number += 1
            continue
        indent, first, comment = fence.group(1), number, COMMENT.fullmatch(lines[number - 1]) if number else None
        number += 1
        while number < len(lines) and lines[number] != indent + "```":
            number += 1
        if number == len(lines):
            raise ValueError(f"{page}:{first + 1}: the block does not end")
        body = [line.removeprefix(indent) for line in lines[first + 1:number]]
        found.append(Block(page, first + 1, fence.group(2), "\n".join(body) + "\n", comment.group(1) if comment else None))
        number += 1
    return found


def indented(text):
    """Numbers of the lines that begin an indented block, which has no language."""
    inside, found, before = False, [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.fullmatch(line):
            inside = not inside
        elif not inside and line.startswith("    ") and not before.strip():
            found.append(number)
        before = line
    return found


def problem(block, commands):
    """What is wrong with a block as a part of its page; None if nothing is. `commands`: the names of the program's."""
    if block.comment is not None and block.reason is None:
        return f"<!--{block.comment}--> is no mark: write <!-- not run: REASON -->"
    if block.language in FORMS:
        if re.search(rf"^(\w*\$ |diapason ({'|'.join(commands)})\b)", block.text, re.MULTILINE):
            return "has a command: it is not " + block.language
        return "is never run: take its mark away" if block.reason else None
    if block.language not in RUN:
        return f"nothing runs the language '{block.language}': name one of {', '.join(RUN + FORMS)}"
    return None


@dataclasses.dataclass
class Command:
    text: str
    output: list  # the lines that the page shows


def commands(block):
    """The commands of a block for a shell, without comments at their ends."""
    found, continued = [], False
    for line in block.text.splitlines():
        prompt = re.match(r"\w*\$ ", line)
        if continued:
            found[-1].text += "\n" + line
        elif block.language == "console" and not prompt:
            if not found:
                raise ValueError(f"{block}: output without a command")
            found[-1].output.append(line)
            continue
        elif line.strip() and not line.startswith("#"):
            found.append(Command(line[prompt.end():] if prompt else line, []))
        continued = line.endswith("\\")
    for command in found:
        command.text = re.sub(r"\s+# .*$", "", command.text)
    return found
