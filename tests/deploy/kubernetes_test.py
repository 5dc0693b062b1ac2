"""The manifests of deploy/kubernetes: what they name must be there, in themselves, in each other and in the program."""
import os
import pathlib
import re
import subprocess
import unittest

try:
    import yaml
except ImportError as missing:
    if "pyyaml" not in os.environ.get("DIAPASON_TEST_MAY_LACK", "").split():
        raise
    raise unittest.SkipTest("there is no PyYAML") from missing

FOLDER = pathlib.Path(os.environ["DIAPASON_DEPLOY"]) / "kubernetes"
VERSIONS = {"PersistentVolumeClaim": "v1", "Service": "v1", "Pod": "v1", "Deployment": "apps/v1", "DaemonSet": "apps/v1"}
TEMPLATE = "worker-pod.yaml"
# What the flags of docs/fleet.md would become.
FILLED = {"{{name}}": "diapason-0a1b-x", "{{label}}": "0a1b",
          "{{secret}}": "diapason-0a1b",
          "{{args}}": '["worker", "--tracker", "diapason-tracker:9190", "--devices", "cuda:0", "--token-file", '
                      '"/etc/diapason/worker.token"]'}


class StrictLoader(yaml.SafeLoader):
    """As the API server: a key that is there twice is an error."""


def _mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    if len(keys) != len(set(keys)):
        raise yaml.YAMLError("a key is there twice: %s" % keys)
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def text_of(path):
    text = path.read_text(encoding="utf-8")
    if path.name == TEMPLATE:
        for place, value in FILLED.items():
            text = text.replace(place, value)
    return text


def documents():
    """(file, its text, document) of all manifests."""
    for path in sorted(FOLDER.glob("*.yaml")):
        text = text_of(path)
        for document in yaml.load_all(text, StrictLoader):
            yield path.name, text, document


def pods():
    """(file, its text, metadata, spec) of each pod or template of pods."""
    for name, text, document in documents():
        if document["kind"] in ("Deployment", "DaemonSet"):
            template = document["spec"]["template"]
            yield name, text, template["metadata"], template["spec"]
        elif document["kind"] == "Pod":
            yield name, text, document["metadata"], document["spec"]


def flags_of(container):
    return dict(arg.split("=", 1) for arg in container["args"] if arg.startswith("--") and "=" in arg)


class Manifests(unittest.TestCase):
    def test_there_is_what_a_cluster_needs(self):
        kinds = sorted((document["kind"], document["metadata"]["name"]) for _, _, document in documents())
        self.assertEqual(kinds, [("DaemonSet", "diapason-worker"), ("Deployment", "diapason-service"),
                                 ("Deployment", "diapason-tracker"), ("PersistentVolumeClaim", "diapason-history"),
                                 ("PersistentVolumeClaim", "diapason-tracker"), ("Pod", "diapason-0a1b-x"),
                                 ("Service", "diapason-service"), ("Service", "diapason-tracker")])
        for name, _, document in documents():
            self.assertEqual(document["apiVersion"], VERSIONS[document["kind"]], name)

    def test_selectors_find_their_pods(self):
        labels = [metadata["labels"] for _, _, metadata, _ in pods()]
        for name, _, document in documents():
            spec = document["spec"]
            if document["kind"] in ("Deployment", "DaemonSet"):
                wanted = spec["selector"]["matchLabels"]
                self.assertLessEqual(wanted.items(), spec["template"]["metadata"]["labels"].items(), name)
            if document["kind"] == "Service":
                self.assertEqual(sum(spec["selector"].items() <= of_pod.items() for of_pod in labels), 1, name)

    def test_one_writer_keeps_its_files_on_a_volume(self):
        claims = {d["metadata"]["name"] for _, _, d in documents() if d["kind"] == "PersistentVolumeClaim"}
        for name, _, document in documents():
            if document["kind"] != "Deployment":
                continue
            self.assertEqual((document["spec"]["replicas"], document["spec"]["strategy"]), (1, {"type": "Recreate"}), name)
            pod = document["spec"]["template"]["spec"]
            claimed = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
            self.assertLessEqual(set(claimed.values()), claims, name)
            container = pod["containers"][0]
            kept = [m["mountPath"] for m in container["volumeMounts"] if m["name"] in claimed]
            files = [value for flag, value in flags_of(container).items() if flag in ("--state", "--history")]
            self.assertEqual([os.path.dirname(file) for file in files], kept, name)

    def test_mounts_name_volumes(self):
        for name, _, _, pod in pods():
            volumes = [volume["name"] for volume in pod["volumes"]]
            mounts = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
            self.assertEqual(sorted(volumes), sorted(mounts), name)

    def test_secrets_hold_what_flags_name(self):
        for name, text, _, pod in pods():
            secrets = [v["secret"] for v in pod["volumes"] if "secret" in v]
            self.assertEqual([secret["defaultMode"] for secret in secrets], [0o400], name)
            if name == TEMPLATE:
                continue  # Diapason makes the secret
            comment = re.sub(r"\\\n#", " ", text)
            made = re.search(r"kubectl create secret generic (\S+)(.*)", comment)
            self.assertEqual(made[1], secrets[0]["secretName"], name)
            held = re.findall(r"--from-file=certs/(\S+)", made[2])
            named = [v.removeprefix("/etc/diapason/") for v in flags_of(pod["containers"][0]).values() if v.startswith("/etc/diapason/")]
            self.assertEqual(sorted(held), sorted(named), name)

    def test_flags_are_those_of_the_program(self):
        for name, _, _, pod in pods():
            container = pod["containers"][0]
            self.assertEqual(container["command"], ["/opt/diapason/bin/diapason"], name)
            runs = [container["args"]]
            runs += [container[probe]["exec"]["command"][1:] for probe in container if probe.endswith("Probe")]
            for args in runs:
                words = [arg for arg in args[:2] if not arg.startswith("--")]
                help_text = subprocess.run([os.environ["DIAPASON_PROGRAM"], *words, "--help"], check=True,
                                           capture_output=True, text=True).stdout
                for arg in args[1:]:
                    if arg.startswith("--"):
                        self.assertRegex(help_text, re.escape(arg.split("=")[0]) + r"\s", name)

    def test_addresses_are_those_of_services(self):
        ports = {"%s:%d" % (d["metadata"]["name"], d["spec"]["ports"][0]["port"]): d["spec"]["selector"]
                 for _, _, d in documents() if d["kind"] == "Service"}
        trackers = 0
        for name, _, metadata, pod in pods():
            container = pod["containers"][0]
            tracker = flags_of(container).get("--tracker")
            if tracker is not None:
                trackers += 1
                self.assertEqual(ports[tracker], {"app": "diapason-tracker"}, name)
            listens = flags_of(container).get("--listen")
            if listens is None:
                continue
            port = int(listens.rsplit(":", 1)[1])
            self.assertEqual([p["containerPort"] for p in container["ports"]], [port], name)
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                command = container[probe]["exec"]["command"]
                self.assertEqual(command[:3], ["/opt/diapason/bin/diapason", "fleet", "health"], name)
                asked = dict(arg.split("=", 1) for arg in command[3:])
                self.assertEqual(asked.pop("--address"), "localhost:%d" % port, name)
                shown = {flag: value for flag, value in flags_of(container).items() if flag.startswith("--tls-")}
                self.assertEqual(asked, shown, name)
                self.assertGreaterEqual(container[probe]["timeoutSeconds"], 5, name)
            self.assertIn("%s:%d" % (metadata["labels"]["app"], port), ports, name)
        self.assertEqual(trackers, 2)  # the service's and the workers'

    def test_workers_ask_for_gpus_and_have_time_to_drain(self):
        drain = 30
        self.assertIn("(default %d)" % drain, subprocess.run([os.environ["DIAPASON_PROGRAM"], "worker", "--help"], check=True,
                                                             capture_output=True, text=True).stdout.split("--drain")[1].split("\n")[0])
        workers = 0
        for name, _, metadata, pod in pods():
            if metadata["labels"]["app"] != "diapason-worker":
                continue
            workers += 1
            self.assertEqual(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1, name)
            self.assertGreater(pod["terminationGracePeriodSeconds"], drain, name)
        self.assertEqual(workers, 2)

    def test_nobody_gains_privileges(self):
        for name, _, _, pod in pods():
            context = pod["containers"][0]["securityContext"]
            self.assertEqual((context["allowPrivilegeEscalation"], context["capabilities"]), (False, {"drop": ["ALL"]}), name)


if __name__ == "__main__":
    unittest.main()
