"""The results of a run in one JSON document, results.json of its folder: by part, kept after each step, so that a run that is
cut leaves what it had."""
import json
import pathlib

FILE = "results.json"


class Results:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._parts = read(self.folder) if (self.folder / FILE).exists() else {}

    def save(self, part, result):
        self._parts[part] = result
        # Never half a document: a run may be cut at any time.
        unfinished = self.folder / (FILE + ".new")
        unfinished.write_text(json.dumps(self._parts, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.folder / FILE)

    def load(self, part):
        """What is known of a part; nothing when it never ran."""
        return self._parts.get(part, {})

    def add(self, folder):
        """Takes the parts of another run. A part is measured once: SystemExit when both have it, or the builds differ."""
        folder = pathlib.Path(folder)
        for part, result in read(folder).items():
            if part in self._parts:
                raise SystemExit(f"bench/h200.sh: {folder} has {part}, which another folder has, too; a table has one run of each part")
            self.check_build(result["build"], folder)
            self.save(part, result)

    def check_build(self, build, where):
        for result in self._parts.values():
            if result["build"] != build:
                raise SystemExit(f"bench/h200.sh: {where} is of build {build}, the parts here are of build {result['build']}; "
                                 "a table is of one build: measure all of it with the same programs, into a new folder")


def read(folder):
    path = pathlib.Path(folder) / FILE
    if not path.exists():
        raise SystemExit(f"bench/h200.sh: there is no {FILE} in {folder}; name the --out of an earlier run")
    return json.loads(path.read_text(encoding="utf-8"))
