//! Replicas from DNS: each address behind a name is one.
//!
//! A name is asked again when what it said has expired, within limits. One that is not answered, or
//! answered with no address, keeps its replicas: a resolver that is broken must not take a fleet away,
//! and engines that are really gone are found by their probes. Addresses that a later answer no longer
//! holds drain.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;
use tokio::time::{Instant, sleep_until};

use super::Feed;
use super::entry::WEIGHTS;
use super::parts::Parts;
use crate::config::{DnsName, ReplicaSpec, spec};

/// An answer is believed at least so long: a TTL of 0 must not make a loop of questions.
const SHORTEST: Duration = Duration::from_secs(1);

/// And at most so long: a replica that left is then noticed within a minute, whatever its TTL says.
const LONGEST: Duration = Duration::from_secs(60);

/// Limit of one question to one server.
const PATIENCE: Duration = Duration::from_secs(2);

/// Hosts that are looked up for one SRV name, at most.
const MAX_HOSTS: usize = 1_000;

/// What a name said, and for how long.
type Said = (Vec<ReplicaSpec>, Duration);

/// A name, and when it is asked again.
struct Asked {
    name: DnsName,
    due: Instant,
    /// In a row.
    failures: u32,
}

/// Asks for `names` for ever.
pub(crate) async fn follow(names: Vec<DnsName>, servers: Vec<SocketAddr>, feed: Feed) {
    let mut parts = Parts::of(names.iter().map(ToString::to_string));
    let asked = |name| Asked { name, due: Instant::now(), failures: 0 };
    let mut names: Vec<_> = names.into_iter().map(asked).collect();
    let mut resolver = Lazy { servers, made: None };
    loop {
        let first = names.iter().map(|asked| asked.due).min();
        sleep_until(first.unwrap_or_else(|| Instant::now() + LONGEST)).await;
        let now = Instant::now();
        for (i, asked) in names.iter_mut().enumerate().filter(|(_, asked)| asked.due <= now) {
            parts.put(i, asked.again(&mut resolver).await);
        }
        feed.found(parts.finding()).await;
    }
}

impl Asked {
    async fn again(&mut self, resolver: &mut Lazy) -> Result<Vec<ReplicaSpec>, String> {
        let said = match resolver.get() {
            Ok(resolver) => ask(resolver, &self.name).await,
            Err(problem) => Err(problem),
        };
        let ttl = said.as_ref().ok().map(|(_, ttl)| *ttl);
        self.failures = if ttl.is_some() { 0 } else { self.failures.saturating_add(1) };
        self.due = Instant::now() + pause(ttl, self.failures);
        said.map(|(replicas, _)| replicas)
    }
}

/// A resolver that is made when it is needed: the system's configuration may come later than the router.
struct Lazy {
    servers: Vec<SocketAddr>,
    made: Option<TokioResolver>,
}

impl Lazy {
    fn get(&mut self) -> Result<&TokioResolver, String> {
        match &mut self.made {
            Some(made) => Ok(made),
            empty => Ok(empty.insert(connect(&self.servers)?)),
        }
    }
}

/// Time until a name is asked again: its TTL, or longer with every failure in a row.
fn pause(ttl: Option<Duration>, failures: u32) -> Duration {
    let wanted = ttl.unwrap_or_else(|| SHORTEST.saturating_mul(1 << failures.min(16)));
    wanted.clamp(SHORTEST, LONGEST)
}

/// Answers are not kept here: how long they hold is decided above.
fn connect(servers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let problem = |error: NetError| format!("no resolver: {error}");
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio().map_err(problem)?
    } else {
        let servers = servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.timeout = PATIENCE;
    builder.build().map_err(problem)
}

fn name_server(addr: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(addr.ip());
    let on_port = |connection: &mut ConnectionConfig| connection.port = addr.port();
    server.connections.iter_mut().for_each(on_port);
    server
}

async fn ask(resolver: &TokioResolver, name: &DnsName) -> Result<Said, String> {
    if name.services { services(resolver, name).await } else { addresses(resolver, name).await }
}

async fn addresses(resolver: &TokioResolver, name: &DnsName) -> Result<Said, String> {
    let (ips, ttl) = ips_of(resolver, name.name()).await?;
    let port = name.url.port();
    let replicas = ips.into_iter().filter_map(|ip| replica(name, ip, port, 1.0)).collect();
    Ok((replicas, ttl))
}

/// The addresses of a host: IPv6 only where it has no others, since an engine with both is one engine.
async fn ips_of(resolver: &TokioResolver, host: &str) -> Result<(Vec<IpAddr>, Duration), String> {
    let lookup = match resolver.ipv4_lookup(host).await {
        Err(error) if error.is_no_records_found() && !error.is_nx_domain() => {
            resolver.ipv6_lookup(host).await
        }
        other => other,
    };
    let lookup = lookup.map_err(|error| explain(&error))?;
    let address = |data: &RData| match data {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
        _ => None,
    };
    let mut ips: Vec<_> = data(&lookup).filter_map(address).collect();
    // Servers turn their answers round.
    ips.sort_unstable();
    ips.dedup();
    if ips.is_empty() { Err(NO_ADDRESS.to_owned()) } else { Ok((ips, ttl(&lookup))) }
}

const NO_ADDRESS: &str = "it has no address";

async fn services(resolver: &TokioResolver, name: &DnsName) -> Result<Said, String> {
    let lookup = resolver.srv_lookup(name.name()).await.map_err(|error| explain(&error))?;
    let services: Vec<&SRV> =
        data(&lookup).filter_map(|data| if let RData::SRV(srv) = data { Some(srv) } else { None }).collect();
    let (mut replicas, mut ttl) = (BTreeMap::new(), ttl(&lookup));
    for (srv, weight) in weighed(&services).into_iter().take(MAX_HOSTS) {
        let (ips, host_ttl) = ips_of(resolver, &srv.target.to_string()).await?;
        ttl = ttl.min(host_ttl);
        for ip in ips {
            if let Some(replica) = replica(name, ip, Some(srv.port), weight) {
                replicas.insert(replica.url.clone(), replica);
            }
        }
    }
    if replicas.is_empty() { Err(NO_ADDRESS.to_owned()) } else { Ok((replicas.into_values().collect(), ttl)) }
}

/// The services of the first priority, each with its weight relative to their mean.
fn weighed<'a>(services: &[&'a SRV]) -> Vec<(&'a SRV, f32)> {
    let first = services.iter().map(|srv| srv.priority).min();
    let chosen: Vec<_> = services.iter().copied().filter(|srv| Some(srv.priority) == first).collect();
    let mean = chosen.iter().map(|srv| f32::from(srv.weight)).sum::<f32>() / chosen.len().max(1) as f32;
    let weight = |srv: &SRV| match (mean > 0.0).then(|| f32::from(srv.weight) / mean) {
        Some(weight) => weight.clamp(*WEIGHTS.start(), *WEIGHTS.end()),
        None => 1.0,
    };
    chosen.into_iter().map(|srv| (srv, weight(srv))).collect()
}

fn replica(name: &DnsName, ip: IpAddr, port: Option<u16>, weight: f32) -> Option<ReplicaSpec> {
    let mut url = name.url.clone();
    url.set_ip_host(ip).ok()?;
    url.set_port(port).ok()?;
    let spec = spec(None, url.as_str()).ok()?;
    Some(ReplicaSpec { weight, ..spec })
}

fn data(lookup: &Lookup) -> impl Iterator<Item = &RData> {
    lookup.answers().iter().map(|record| &record.data)
}

/// How long the whole answer holds.
fn ttl(lookup: &Lookup) -> Duration {
    let shortest = lookup.answers().iter().map(|record| record.ttl).min();
    Duration::from_secs(u64::from(shortest.unwrap_or(0)))
}

fn explain(error: &NetError) -> String {
    if error.is_nx_domain() {
        "no such name".to_owned()
    } else if error.is_no_records_found() {
        NO_ADDRESS.to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests;
