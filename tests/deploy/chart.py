"""Values to render the chart with, and what must hold of what comes out."""

LIST = {"list": ["http://10.0.0.1:8000", "gpu-2=http://10.0.0.2:8000"]}

CASES = {
    "defaults": {"engines": LIST},
    "deployment": {"engines": LIST, "kind": "Deployment", "replicaCount": 1},
    "dns": {"engines": {"dns": ["http://vllm.inference:8000", "srv+http://_http._tcp.vllm.inference"]}},
    "kubernetes": {"engines": {"kubernetes": ["vllm", "inference/vllm:8000", "other/{app.kubernetes.io/name=x}:8000"]}},
    "existing secret": {
        "engines": LIST,
        "secrets": {"existingSecret": "mine", "keys": {"previous": "old", "engineKey": "engine"}},
    },
    "everything": {
        "engines": LIST,
        "fullnameOverride": "a-name-of-fifty-characters-and-more-which-is-cut-off-somewhere",
        "settings": {"GRAPEVINE_BODY_LIMIT": "128MiB", "GRAPEVINE_GUARD_ABS": 64, "GRAPEVINE_DEBUG_HEADERS": True},
        "secrets": {"engineKey": "key", "adminToken": "a-token-long-enough", "clusterSecret": "a-secret-long-enough"},
        "clientKeys": {"existingSecret": "clients"},
        "tls": {"existingSecret": "tls"},
        "bindAddress": "[::]",
        "drain": {"preStopSeconds": 0, "delaySeconds": 10, "timeoutSeconds": 600},
        "ingress": {"enabled": True, "host": "llm.example", "className": "nginx", "tlsSecret": "web"},
        "autoscaling": {"enabled": True},
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"llm": "yes"}}}]},
        "podAnnotations": {"a": "b"},
        "imagePullSecrets": [{"name": "pull"}],
        "extraEnv": [{"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "zone=a"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}, "data": {}}
        ],
    },
}

REFUSED = {
    "no engines": {},
    "an engine that is no URL": {"engines": {"list": ["10.0.0.1:8000"]}},
    "a value that does not exist": {"engines": LIST, "replicacount": 3},
    "another kind of workload": {"engines": LIST, "kind": "DaemonSet"},
    "a variable that is no setting": {"engines": LIST, "settings": {"PATH": "/"}},
    "a setting that the chart makes itself": {"engines": LIST, "settings": {"GRAPEVINE_LISTEN": "0.0.0.0:1"}},
    "a short secret": {"engines": LIST, "secrets": {"adminToken": "short"}},
    "an ingress without a host": {"engines": LIST, "ingress": {"enabled": True}},
}


def check_case(name: str, values: dict, objects: list, kubernetes: str) -> list[str]:
    """What is wrong with the rendered objects of a case."""
    kinds = {}
    for one in objects:
        kinds.setdefault(one["kind"], []).append(one)
    kind = values.get("kind", "StatefulSet")
    pod = kinds[kind][0]["spec"]["template"]
    problems = []
    problems += pod_problems(values, pod, kubernetes)
    problems += peers_problems(pod, kinds)
    problems += access_problems(values, pod, kinds)
    if name == "everything":
        problems += everything_problems(kinds)
    return problems


def pod_problems(values: dict, pod: dict, kubernetes: str) -> list[str]:
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    drain = {"preStopSeconds": 5, "delaySeconds": 2, "timeoutSeconds": 120, **values.get("drain", {})}
    sleeps = drain["preStopSeconds"] > 0 and kubernetes != "1.27"
    paths = {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe", "startupProbe")}
    security = {**spec["securityContext"], **container["securityContext"]}
    checks = {
        "the grace period is longer than the drain": spec["terminationGracePeriodSeconds"] > sum(drain.values()),
        "preStop sleeps where it can": ("lifecycle" in container) == sleeps,
        "probes have their own paths": paths["readinessProbe"] == "/readyz" and paths["livenessProbe"] == "/livez",
        "the root is read-only": security["readOnlyRootFilesystem"] and security["runAsNonRoot"],
        "no capabilities": security["capabilities"] == {"drop": ["ALL"]},
        "no variables of Services": spec["enableServiceLinks"] is False,
        "two spreads": len(spec["topologySpreadConstraints"]) == 2,
        "each variable once": len(names(container)) == len(set(names(container))),
        "settings are passed": set(values.get("settings", {})) <= set(names(container)),
        "names fit": len(spec["serviceAccountName"]) <= 50,
    }
    return [what for what, holds in checks.items() if not holds]


def names(container: dict) -> list[str]:
    return [variable["name"] for variable in container["env"]]


def peers_problems(pod: dict, kinds: dict) -> list[str]:
    """Routers find each other through a headless Service, and nobody else reaches gossip."""
    labels = pod["metadata"]["labels"]
    headless = [service for service in kinds["Service"] if service["spec"].get("clusterIP") == "None"]
    seeds = next(v["value"] for v in pod["spec"]["containers"][0]["env"] if v["name"] == "GRAPEVINE_GOSSIP_SEEDS")
    gossip = [rule for rule in kinds["NetworkPolicy"][0]["spec"]["ingress"]
              if any(port["port"] == "gossip" for port in rule["ports"])]
    checks = {
        "one headless Service": len(headless) == 1,
        "it has routers that are not ready": headless[0]["spec"]["publishNotReadyAddresses"],
        "seeds are its name": seeds == f"{headless[0]['metadata']['name']}.fleet:7946",
        "Services select the pods": all(s["spec"]["selector"].items() <= labels.items() for s in kinds["Service"]),
        "the test's pod is no router": not kinds["Service"][0]["spec"]["selector"].items()
        <= kinds["Pod"][0]["metadata"]["labels"].items(),
        "only routers reach gossip": len(gossip) == 1 and len(gossip[0]["from"]) == 1
        and gossip[0]["from"][0]["podSelector"]["matchLabels"].items() <= labels.items(),
        "one router at a time is taken away": kinds["PodDisruptionBudget"][0]["spec"]["maxUnavailable"] == 1,
    }
    return [what for what, holds in checks.items() if not holds]


def access_problems(values: dict, pod: dict, kinds: dict) -> list[str]:
    """Rights in the cluster only where engines are looked for in it, and secrets as files only."""
    engines = values["engines"].get("kubernetes", [])
    spaces = {one.split("/")[0] if "/" in one else "fleet" for one in engines}
    roles = {role["metadata"]["namespace"] for role in kinds.get("Role", [])}
    variables = pod["spec"]["containers"][0]["env"]
    own = "existingSecret" not in values.get("secrets", {})
    checks = {
        "a token only where it is needed": pod["spec"]["automountServiceAccountToken"] == bool(engines),
        "a Role where engines are, and nowhere else": roles == spaces,
        "no secret in a variable": not any(v["name"].endswith(("SECRET", "TOKEN", "_KEY")) for v in variables
                                           if v["name"] != "GRAPEVINE_TLS_KEY"),
        "a Secret unless there is one": ("Secret" in kinds) == own,
    }
    return [what for what, holds in checks.items() if not holds]


def everything_problems(kinds: dict) -> list[str]:
    workload = kinds["StatefulSet"][0]["spec"]
    monitor = kinds["ServiceMonitor"][0]["spec"]
    checks = {
        "the autoscaler owns the number": "replicas" not in workload,
        "rules are there": kinds["PrometheusRule"][0]["spec"]["groups"],
        "the dashboard is there": any("panels" in str(m.get("data")) for m in kinds["ConfigMap"]),
        "Prometheus sends the token": monitor["endpoints"][0]["authorization"]["credentials"]["key"] == "admin-token",
        "extra objects are templates": any(m["metadata"]["name"] == "gv-x" for m in kinds["ConfigMap"]),
        "the ingress has its host": kinds["Ingress"][0]["spec"]["rules"][0]["host"] == "llm.example",
    }
    return [what for what, holds in checks.items() if not holds]
