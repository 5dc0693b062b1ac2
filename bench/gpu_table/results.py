"""The folder of results: a JSON document a part, histories, and what earlier runs left of both."""
import json
import pathlib
import shutil
import time

HISTORY_ENDINGS = (".db", ".db-wal", ".db-shm", ".db.model")


class Results:
    """REQUIRES: no tune is writing to a history of the folder while it is copied."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def history(self, name):
        return self.folder / f"{name}.db"

    def take_over(self, earlier):
        """Copies histories and finished parts of an earlier run; what is here already stays as it is."""
        earlier = pathlib.Path(earlier)
        if not earlier.is_dir():
            raise SystemExit(f"bench/h200.py: --history {earlier} is no folder; name the --out of an earlier run")
        for path in sorted(earlier.glob("*.db")):
            if not self.history(path.stem).exists():
                copy_history(path, self.history(path.stem))
        for path in sorted(earlier.glob("*.json")):
            if not (self.folder / path.name).exists():
                shutil.copyfile(path, self.folder / path.name)

    def save(self, part, result):
        self._write(f"{part}.json", result)

    def load(self, part):
        """What is known of a part; nothing when it never ran."""
        return self._read(f"{part}.json")

    def tuned_seconds(self, name):
        """Seconds of tuning that went into a history so far; a run that was cut counts whole."""
        return sum(entry["seconds"] for entry in self._read("tuned.json").get(name, []))

    def note_tuning(self, name, seconds):
        """To be called before the tuning starts, so that a run that is cut is not forgotten."""
        tuned = self._read("tuned.json")
        tuned.setdefault(name, []).append({"seconds": seconds, "started": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())})
        self._write("tuned.json", tuned)

    def _read(self, name):
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def _write(self, name, content):
        # Never half a document: a run may be cut at any time.
        unfinished = self.folder / (name + ".new")
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(self.folder / name)


def copy_history(source, to):
    """A history that nobody writes to, with its log and its model."""
    for ending in HISTORY_ENDINGS:
        path = source.with_name(source.stem + ending)
        if path.exists():
            shutil.copyfile(path, to.with_name(to.stem + ending))
