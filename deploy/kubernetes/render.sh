#!/usr/bin/env bash
# Renders the chart into base/: plain manifests for kustomize. Needs helm 3.14 or later (HELM names another binary).
#
#   deploy/kubernetes/render.sh           writes them
#   deploy/kubernetes/render.sh --check   fails when they are not what the chart renders
set -euo pipefail
cd "$(dirname "$0")"

# Without helm's own labels: these manifests have nothing to do with it any more.
render() {
    "${HELM:-helm}" template grapevine ../helm/grapevine --namespace grapevine --values values.yaml \
        --kube-version 1.30.0 --skip-tests "$@" |
        sed -e '/helm\.sh\/chart:/d' -e '/app\.kubernetes\.io\/managed-by:/d' -e 's/^# Source: .*/# Rendered by render.sh./'
}

out=base
if [[ "${1:-}" == --check ]]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
render >"$out/grapevine.yaml"
render --set serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true \
    --show-only templates/monitoring.yaml >"$out/monitoring.yaml"
if [[ "$out" != base ]]; then
    diff -u base/grapevine.yaml "$out/grapevine.yaml"
    diff -u base/monitoring.yaml "$out/monitoring.yaml"
fi
