//! From EndpointSlices to replicas. Pure: no I/O, no clock.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use crate::config::{KubernetesEndpoints, ReplicaSpec, spec};
use crate::discovery::entry::{kind_of, weight_of};

/// Labels by which a Service, and with it its slices, says what its replicas are.
const WEIGHT: &str = "grapevine/weight";
const KIND: &str = "grapevine/kind";

/// The port that is meant where a Service has several and none was named.
const USUAL_PORT: &str = "http";

/// The replicas of these slices, each once. A pod that is not ready is known and held; one that is going
/// away is no replica any more.
pub(super) fn replicas<'a>(
    wanted: &KubernetesEndpoints,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
) -> Result<Vec<ReplicaSpec>, String> {
    // A pod with addresses of both families is in slices of both: it is one replica.
    let family = if slices.clone().any(|slice| slice.address_type == "IPv4") { "IPv4" } else { "IPv6" };
    let mut replicas = BTreeMap::new();
    for slice in slices.filter(|slice| slice.address_type == family && !slice.endpoints.is_empty()) {
        let port = port_of(wanted, slice)?;
        for endpoint in slice.endpoints.iter().filter(|endpoint| !is_terminating(endpoint)) {
            let replica = replica(slice, endpoint, port)?;
            replicas.insert(replica.url.clone(), replica);
        }
    }
    Ok(replicas.into_values().collect())
}

fn is_terminating(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.terminating).unwrap_or(false)
}

fn port_of<'a>(wanted: &KubernetesEndpoints, slice: &'a EndpointSlice) -> Result<&'a EndpointPort, String> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let called = |name: &str| {
        let is = |port: &&EndpointPort| {
            port.name.as_deref() == Some(name) || port.port.is_some_and(|number| number.to_string() == name)
        };
        ports.iter().find(is)
    };
    match (&wanted.port, ports) {
        (Some(name), _) => called(name).ok_or_else(|| format!("it has no port `{name}`")),
        (None, [only]) => Ok(only),
        (None, _) => {
            called(USUAL_PORT).ok_or_else(|| "it has several ports: say which, as `service:port`".to_owned())
        }
    }
}

fn replica(slice: &EndpointSlice, endpoint: &Endpoint, port: &EndpointPort) -> Result<ReplicaSpec, String> {
    let address = endpoint.addresses.first().ok_or("an endpoint has no address")?;
    let host = if address.contains(':') { format!("[{address}]") } else { address.clone() };
    let scheme = if port.app_protocol.as_deref() == Some("https") { "https" } else { "http" };
    let number = port.port.ok_or("a port has no number")?;
    let pod = endpoint.target_ref.as_ref().and_then(|target| target.name.as_deref());
    let mut replica = spec(pod, &format!("{scheme}://{host}:{number}"))?;
    let label = |name| slice.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    if let Some(weight) = label(WEIGHT) {
        let number = weight.parse().map_err(|_| format!("label {WEIGHT}: `{weight}` is not a number"))?;
        replica.weight = weight_of(number)?;
    }
    replica.kind = label(KIND).map(|kind| kind_of(kind)).transpose()?;
    // Nothing said counts as ready.
    let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true);
    replica.held = !ready;
    Ok(replica)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wanted(port: Option<&str>) -> KubernetesEndpoints {
        KubernetesEndpoints {
            namespace: None,
            selector: "app=x".into(),
            service: None,
            port: port.map(str::to_owned),
        }
    }

    fn slice(family: &str, ports: &Value, endpoints: &Value) -> EndpointSlice {
        let labels = json!({ "grapevine/weight": "2", "grapevine/kind": "sglang" });
        let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": { "name": "s", "labels": labels }, "ports": ports, "endpoints": endpoints });
        serde_json::from_value(slice).unwrap()
    }

    fn found(port: Option<&str>, slices: &[EndpointSlice]) -> Result<Vec<(String, String, bool)>, String> {
        let replicas = replicas(&wanted(port), slices.iter())?;
        Ok(replicas.into_iter().map(|r| (r.name, r.url, r.held)).collect())
    }

    fn ready(address: &str) -> Value {
        json!({ "addresses": [address], "conditions": { "ready": true } })
    }

    #[test]
    fn ready_ones_serve_others_are_held_and_leaving_ones_are_gone() {
        let endpoints = json!([
            { "addresses": ["10.0.0.1"], "targetRef": { "kind": "Pod", "name": "vllm-0" } },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false, "serving": false, "terminating": false } },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": false, "serving": true, "terminating": true } },
        ]);
        let slices = [slice("IPv4", &json!([{ "port": 8000 }]), &endpoints)];
        let text = |t: &str| t.to_owned();
        let expected = vec![
            (text("vllm-0"), text("http://10.0.0.1:8000"), false),
            (text("10.0.0.2:8000"), text("http://10.0.0.2:8000"), true),
        ];
        assert_eq!(found(None, &slices), Ok(expected));
        let replica = &replicas(&wanted(None), slices.iter()).unwrap()[0];
        assert_eq!((replica.weight, replica.kind), (2.0, Some(crate::engine::Kind::Sglang)));
    }

    #[test]
    fn one_pod_in_several_slices_or_families_is_one_replica() {
        let port = json!([{ "port": 8000 }]);
        let four = slice("IPv4", &port, &json!([ready("10.0.0.1")]));
        let six = slice("IPv6", &port, &json!([ready("fd00::1")]));
        assert_eq!(found(None, &[four.clone(), six.clone(), four]).unwrap().len(), 1);
        assert_eq!(found(None, &[six]).unwrap()[0].1, "http://[fd00::1]:8000");
        assert_eq!(found(None, &[]), Ok(Vec::new()));
    }

    #[test]
    fn a_port_is_found_by_name_or_number_or_because_it_is_the_only_one() {
        let ports = json!([{ "name": "metrics", "port": 9000 },
            { "name": "api", "port": 8443, "appProtocol": "https" }]);
        let slices = [slice("IPv4", &ports, &json!([ready("10.0.0.1")]))];
        assert_eq!(found(Some("api"), &slices).unwrap()[0].1, "https://10.0.0.1:8443");
        assert_eq!(found(Some("9000"), &slices).unwrap()[0].1, "http://10.0.0.1:9000");
        assert!(found(Some("x"), &slices).unwrap_err().contains("no port `x`"));
        assert!(found(None, &slices).unwrap_err().contains("several ports"));
        let usual = json!([{ "name": "metrics", "port": 9000 }, { "name": "http", "port": 80 }]);
        let slices = [slice("IPv4", &usual, &json!([ready("10.0.0.1")]))];
        assert_eq!(found(None, &slices).unwrap()[0].1, "http://10.0.0.1");
    }
}
