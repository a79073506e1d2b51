//! Where replicas are found: names in DNS, Services of Kubernetes.

use std::net::SocketAddr;

use reqwest::Url;

use super::address::items;
use super::replicas::parsed;
use super::scalar::Kind;
use super::scalar::is_metric_name;
use crate::engine::{Figure, Names};

/// Most names, Services or DNS servers: each is asked by itself.
const MAX_SOURCES: usize = 64;

/// How a name of services begins: `srv+http://_http._tcp.engines.example`.
const SERVICES: &str = "srv+";

/// A name in DNS that stands for replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// Scheme, port and path of the replicas; its host is the name that is asked.
    pub url: Url,
    /// SRV records say host and port; else A and AAAA records the host alone.
    pub services: bool,
}

impl DnsName {
    /// The name that is asked.
    pub fn name(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

impl std::fmt::Display for DnsName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = if self.services { SERVICES } else { "" };
        write!(f, "{prefix}{}", self.url.as_str().trim_end_matches('/'))
    }
}

/// `http://name:port` or `srv+http://_service._tcp.name`, separated by commas; empty for none.
pub(super) struct DnsNames;

impl Kind for DnsNames {
    type Value = Vec<DnsName>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        format!("http://name:port or srv+http://name,... (at most {MAX_SOURCES})")
    }

    fn parse(&self, text: &str) -> Result<Vec<DnsName>, String> {
        list(text, dns_name)
    }

    fn show(&self, value: &Vec<DnsName>) -> String {
        shown(value)
    }
}

fn dns_name(text: &str) -> Result<DnsName, String> {
    let (services, plain) = match text.strip_prefix(SERVICES) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let url = parsed(plain)?;
    if url.domain().is_none() {
        return Err(format!("`{text}` is an address, not a name: list it in GRAPEVINE_REPLICAS"));
    }
    if services && url.port().is_some() {
        return Err(format!("`{text}` has a port: SRV records say it, leave it out"));
    }
    Ok(DnsName { url, services })
}

/// Endpoints of Kubernetes that are replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesEndpoints {
    /// Their namespace; `None`: the router's own.
    pub namespace: Option<String>,
    /// The label selector of their EndpointSlices.
    pub selector: String,
    /// The Service's name, if they were named by one.
    pub service: Option<String>,
    /// Name or number of the port; `None`: the only one, or the one called `http`.
    pub port: Option<String>,
}

/// The label by which an EndpointSlice names its Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

impl std::fmt::Display for KubernetesEndpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        match &self.service {
            Some(service) => f.write_str(service)?,
            None => write!(f, "{{{}}}", self.selector)?,
        }
        self.port.as_ref().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// `[namespace/]service[:port]` or `[namespace/]{label selector}[:port]`, separated by commas.
pub(super) struct KubernetesList;

impl Kind for KubernetesList {
    type Value = Vec<KubernetesEndpoints>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        format!("[namespace/]service[:port] or [namespace/]{{selector}}[:port],... (at most {MAX_SOURCES})")
    }

    fn parse(&self, text: &str) -> Result<Vec<KubernetesEndpoints>, String> {
        // The commas of a selector are not those of the list.
        let mut depth = 0usize;
        let marked: String = text
            .chars()
            .map(|c| {
                match c {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if c == ',' && depth > 0 { HIDDEN } else { c }
            })
            .collect();
        list(&marked, |item| endpoints(&item.replace(HIDDEN, ",")))
    }

    fn show(&self, value: &Vec<KubernetesEndpoints>) -> String {
        shown(value)
    }
}

/// Stands for a comma within braces while a list is cut. No selector may hold it.
const HIDDEN: char = '\u{1}';

fn endpoints(text: &str) -> Result<KubernetesEndpoints, String> {
    let wrong = || format!("`{text}` is not [namespace/]service[:port] or [namespace/]{{selector}}[:port]");
    let (head, selector, tail) = match text.split_once('{') {
        Some((head, rest)) => {
            let (selector, tail) = rest.split_once('}').ok_or_else(wrong)?;
            (head, Some(selector.trim().to_owned()).filter(|s| !s.is_empty()), tail)
        }
        None => {
            let split = text.find(':').unwrap_or(text.len());
            let (head, tail) = text.split_at(split);
            (head, None, tail)
        }
    };
    let (namespace, service) = match head.split_once('/') {
        Some((namespace, service)) => (Some(namespace), service),
        None => (None, head),
    };
    let port = match tail.strip_prefix(':') {
        Some(port) => Some(port),
        None if tail.is_empty() => None,
        None => return Err(wrong()),
    };
    let names = [namespace, port].into_iter().flatten();
    let named = if selector.is_some() { service.is_empty() } else { is_dns_label(service) };
    if !named || !names.clone().all(is_dns_label) {
        return Err(wrong());
    }
    let service = selector.is_none().then(|| service.to_owned());
    let selector =
        selector.unwrap_or_else(|| format!("{SERVICE_LABEL}={}", service.as_deref().unwrap_or("")));
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(KubernetesEndpoints { namespace: owned(namespace), selector, service, port: owned(port) })
}

/// What Kubernetes allows as the name of a namespace, a Service or a port.
fn is_dns_label(text: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !text.is_empty() && text.len() <= 253 && text.chars().all(good)
}

/// `ip` or `ip:port` of DNS servers, separated by commas; empty for the system's.
pub(super) struct DnsServers;

/// DNS's port.
const DNS_PORT: u16 = 53;

impl Kind for DnsServers {
    type Value = Vec<SocketAddr>;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        format!("IP[:port],... (at most {MAX_SOURCES})")
    }

    fn parse(&self, text: &str) -> Result<Vec<SocketAddr>, String> {
        list(text, |item| {
            let bare = item.parse().map(|ip| SocketAddr::new(ip, DNS_PORT));
            bare.or_else(|_| item.parse())
                .map_err(|_| format!("`{item}` is not the IP address of a DNS server, or IP:port"))
        })
    }

    fn show(&self, value: &Vec<SocketAddr>) -> String {
        shown(value)
    }
}

/// `figure=metric`, separated by commas; empty for none.
pub(super) struct MetricNames;

impl Kind for MetricNames {
    type Value = Names;

    fn name(&self) -> &'static str {
        "list"
    }

    fn limits(&self) -> String {
        let figures: Vec<_> = Figure::NAMED.iter().map(|(name, _)| *name).collect();
        format!("figure=metric,... with {}", figures.join(", "))
    }

    fn parse(&self, text: &str) -> Result<Names, String> {
        let named = |item: &str| {
            let (figure, metric) = item.split_once('=').unwrap_or((item, ""));
            let known = Figure::NAMED.iter().find(|(name, _)| *name == figure.trim());
            match known.filter(|_| is_metric_name(metric.trim())) {
                Some((_, figure)) => Ok((*figure, metric.trim().to_owned())),
                None => Err(format!("`{item}` is not {}", self.limits())),
            }
        };
        list(text, named).map(Names)
    }

    fn show(&self, value: &Names) -> String {
        let word =
            |figure: &Figure| Figure::NAMED.iter().find(|(_, f)| f == figure).map_or("", |(word, _)| word);
        shown(&value.0.iter().map(|(figure, name)| format!("{}={name}", word(figure))).collect::<Vec<_>>())
    }
}

fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let found = items(text)?.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
    if found.len() > MAX_SOURCES {
        return Err(format!("{} are too many: at most {MAX_SOURCES}", found.len()));
    }
    Ok(found)
}

fn shown<T: ToString>(value: &[T]) -> String {
    if value.is_empty() {
        return "none".to_owned();
    }
    value.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for text in [
            "http://engines.example:8000",
            "srv+http://_http._tcp.engines.example",
            "https://a.b/base,srv+https://_x._tcp.c",
        ] {
            assert_eq!(DnsNames.show(&DnsNames.parse(text).unwrap()), text);
        }
        assert_eq!(DnsNames.parse("").unwrap(), []);
        for (text, problem) in [
            ("engines:8000", "has no scheme"),
            ("http://10.0.0.1:8000", "is an address, not a name"),
            ("srv+http://_http._tcp.x:8080", "has a port"),
            ("http://a,", "is empty"),
        ] {
            let error = DnsNames.parse(text).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn endpoints_read_back() {
        for text in
            ["vllm", "inference/vllm:http", "vllm:8000", "ns/{app=vllm,tier in (a,b)}:http,other", "{app=x}"]
        {
            assert_eq!(KubernetesList.show(&KubernetesList.parse(text).unwrap()), text);
        }
        let two = KubernetesList.parse("ns/{app=vllm,tier in (a,b)}:http,other").unwrap();
        assert_eq!(
            (two[0].selector.as_str(), two[0].port.as_deref()),
            ("app=vllm,tier in (a,b)", Some("http"))
        );
        assert_eq!(
            (two[1].selector.as_str(), &two[1].namespace),
            ("kubernetes.io/service-name=other", &None)
        );
        for text in ["a/b/c", "ns/", "A", "{}", "{a=b", "x{a=b}", "{a=b}80", "svc:", "http://svc"] {
            assert!(KubernetesList.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn metric_names_read_back() {
        let text = "waiting=my:queue_size,kv-use=my_kv";
        assert_eq!(MetricNames.show(&MetricNames.parse(text).unwrap()), text);
        for text in ["waiting", "waiting=", "queue=x", "waiting=a b", "running=1x"] {
            assert!(MetricNames.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dns_servers_have_a_port_of_their_own() {
        let servers = DnsServers.parse("10.0.0.2,[::1]:8600,::2").unwrap();
        assert_eq!(shown(&servers), "10.0.0.2:53,[::1]:8600,[::2]:53");
        assert!(DnsServers.parse("ns.example").is_err());
    }
}
