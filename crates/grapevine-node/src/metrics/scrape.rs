//! What is read from snapshots when somebody asks for metrics: gauges and totals that already live
//! elsewhere, so that a request need not count them twice.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::admin::status::{EngineStatus, ExportStatus, GossipStatus, PeerStatus, ReplicaStatus, Status};
use crate::admin::survey::Observatory;

/// Reads an [`Observatory`].
pub struct Scrape(pub Arc<Observatory>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.status();
        let mut out = Out(encoder);
        router(&status, &mut out)?;
        replicas(&status.replicas, &mut out)?;
        lessons(&status.replicas, &mut out)?;
        engines(&status.replicas, &mut out)?;
        tree(&status, &mut out)?;
        telemetry(&status, &mut out)?;
        gossip(&status, &mut out)
    }
}

fn router(status: &Status, out: &mut Out<'_>) -> fmt::Result {
    out.gauge("inflight_requests", "Requests in this router", status.inflight as i64)?;
    out.gauge("waiting_requests", "Requests that wait for a place", status.waiting as i64)?;
    out.gauge("draining", "1 while this router drains", i64::from(status.router.phase == "draining"))?;
    let mailboxes = &status.mailboxes;
    let each = || mailboxes.iter().map(|(name, mailbox)| (name.as_str(), mailbox));
    out.gauges("mailbox_messages", "Messages waiting", "actor", each().map(|(n, m)| (n, m.depth as i64)))?;
    out.counters("mailbox_dropped", "Messages refused", "actor", each().map(|(n, m)| (n, m.dropped)))?;
    out.counters("mailbox_handled", "Messages handled", "actor", each().map(|(n, m)| (n, m.handled)))?;
    out.counters(
        "actor_busy_seconds",
        "Time in handlers",
        "actor",
        each().map(|(n, m)| (n, m.busy_seconds)),
    )?;
    let idle = each().map(|(n, m)| (n, m.idle_ms as f64 / 1e3));
    out.gauges("actor_idle_seconds", "Since the actor last came round", "actor", idle)
}

fn replicas(replicas: &[ReplicaStatus], out: &mut Out<'_>) -> fmt::Result {
    fn each<'a, V>(
        replicas: &'a [ReplicaStatus],
        value: impl Fn(&ReplicaStatus) -> V + 'a,
    ) -> impl Iterator<Item = (&'a str, V)> {
        replicas.iter().map(move |r| (r.name.as_str(), value(r)))
    }
    let by = "replica";
    let gauge = |value: fn(&ReplicaStatus) -> i64| each(replicas, value);
    let total = |value: fn(&ReplicaStatus) -> u64| each(replicas, value);
    out.gauges("replica_up", "1 when it is well", by, gauge(|r| i64::from(r.health == "up")))?;
    let ejected = gauge(|r| i64::from(r.health == "suspect"));
    out.gauges("replica_ejected", "1 while it is left out for what requests met there", by, ejected)?;
    out.gauges("replica_epoch", "Its cache generation", by, gauge(|r| i64::from(r.epoch)))?;
    out.gauges("replica_inflight_requests", "Own requests there", by, gauge(|r| i64::from(r.inflight)))?;
    out.gauges("replica_queued_tokens", "Own prefill tokens there", by, gauge(|r| r.queued_tokens as i64))?;
    let peers = each(replicas, |r| f64::from(r.peer_inflight));
    out.gauges("replica_peer_inflight_requests", "Peers' requests there", by, peers)?;
    let peers = each(replicas, |r| f64::from(r.peer_queued_tokens));
    out.gauges("replica_peer_queued_tokens", "Peers' prefill tokens there", by, peers)?;
    out.counters("replica_picks", "Requests sent there", by, total(|r| r.picks))?;
    out.counters("replica_prompt_tokens", "Sent there, estimated", by, total(|r| r.tokens.prompt))?;
    let predicted = total(|r| r.tokens.predicted_cached);
    out.counters("replica_predicted_cached_tokens", "Predicted to be cached there", by, predicted)?;
    let prompt = total(|r| r.tokens.reported_prompt);
    out.counters("replica_reported_prompt_tokens", "As its answers reported", by, prompt)?;
    let cached = total(|r| r.tokens.reported_cached);
    out.counters("replica_reported_cached_tokens", "As its answers reported", by, cached)
}

/// What answers taught; nothing of what none did.
fn lessons(replicas: &[ReplicaStatus], out: &mut Out<'_>) -> fmt::Result {
    let by = "replica";
    let error = replicas.iter().filter_map(|r| Some((r.name.as_str(), f64::from(r.credit_error_tokens?))));
    out.gauges("replica_credit_error_tokens", "Predicted minus reported cached tokens, mean", by, error)?;
    let capacity = replicas.iter().filter_map(|r| Some((r.name.as_str(), r.capacity_tokens? as f64)));
    out.gauges(
        "replica_capacity_tokens",
        "Tokens its cache is believed to hold, as the router counts them",
        by,
        capacity,
    )?;
    let lost = replicas.iter().map(|r| (r.name.as_str(), r.lost_caches));
    out.counters("replica_lost_caches", "Caches lost, as failed predictions showed", by, lost)
}

/// What engines say of themselves; nothing for what they do not say.
fn engines(replicas: &[ReplicaStatus], out: &mut Out<'_>) -> fmt::Result {
    fn known<V>(
        replicas: &[ReplicaStatus],
        value: fn(&EngineStatus) -> Option<V>,
    ) -> impl Iterator<Item = (&str, V)> {
        replicas.iter().filter_map(move |r| Some((r.name.as_str(), value(&r.engine)?)))
    }
    let by = "replica";
    let age = known(replicas, |e| e.age_ms.map(|ms| ms as f64 / 1e3));
    out.gauges("engine_metrics_age_seconds", "Since its metrics were read", by, age)?;
    out.gauges("engine_waiting_requests", "As it says", by, known(replicas, |e| e.waiting))?;
    out.gauges("engine_running_requests", "As it says", by, known(replicas, |e| e.running))?;
    out.gauges("engine_kv_cache_usage_ratio", "As it says", by, known(replicas, |e| e.kv_use))?;
    let tokens = known(replicas, |e| e.cache_tokens.map(|tokens| tokens as f64));
    out.gauges("engine_cache_tokens", "Tokens its cache holds, as it says", by, tokens)
}

fn tree(status: &Status, out: &mut Out<'_>) -> fmt::Result {
    let tree = &status.tree;
    out.gauge("tree_nodes", "Radix nodes", tree.nodes as i64)?;
    out.gauge("tree_boundaries", "Boundaries stored", tree.boundaries as i64)?;
    out.gauge("tree_credits", "Credits stored", tree.credits as i64)?;
    out.gauge("tree_bytes", "Estimated heap of the tree", tree.bytes as i64)?;
    out.gauge("tree_dirty", "Changes waiting to be gossiped", tree.dirty as i64)?;
    out.counter("tree_evicted", "Boundaries dropped because of the limit", tree.evicted)?;
    out.counter("tree_expired", "Boundaries that nobody holds any more", tree.expired)?;
    out.counter("tree_overflowed", "Changes for which gossip's queue was full", tree.overflowed)?;
    out.counter("tree_contradictions", "Peers' entries that contradict what is known", tree.contradictions)?;
    out.counter("tree_outdated", "Peers' entries on a cache lost since", tree.outdated)
}

/// What became of spans, logs, pushed metrics and the decision log; nothing of what is off.
fn telemetry(status: &Status, out: &mut Out<'_>) -> fmt::Result {
    let each = |value: fn(&ExportStatus) -> u64| {
        status.telemetry.iter().map(move |(signal, export)| (signal.as_str(), value(export)))
    };
    let by = "signal";
    out.counters(
        "telemetry_made",
        "Spans, log records, pushes of metrics, decisions to be logged",
        by,
        each(|e| e.made),
    )?;
    out.counters("telemetry_delivered", "Taken by the collector, or written", by, each(|e| e.delivered))?;
    out.counters("telemetry_failed", "Not taken by the collector", by, each(|e| e.failed))?;
    out.counters("telemetry_dropped", "Too much waited, or the disk was full", by, each(|e| e.dropped))
}

fn gossip(status: &Status, out: &mut Out<'_>) -> fmt::Result {
    let gossip = &status.gossip;
    out.gauge("gossip_up", "1 when gossip runs", i64::from(gossip.running))?;
    out.gauge("gossip_peers", "Live peers", gossip.live_peers as i64)?;
    out.counter("gossip_entries_published", "Prefixes published", gossip.entries_published)?;
    out.counter("gossip_entries_received", "Prefixes received", gossip.entries_received)?;
    out.counter("gossip_entries_dropped", "Prefixes not published", gossip.entries_dropped)?;
    out.counter("gossip_entries_deferred", "Prefixes that waited a tick", gossip.entries_deferred)?;
    out.counter("gossip_pointed_segments", "Segments for peers to ask for", gossip.segments_pointed)?;
    out.counter("gossip_delta_bytes", "Deltas and load published", gossip.delta_bytes)?;
    out.counter("gossip_sent_bytes", "Sent", gossip.bytes_sent)?;
    out.counter("gossip_received_bytes", "Received", gossip.bytes_received)?;
    out.counter("gossip_sent_datagrams", "Sent", gossip.datagrams_sent)?;
    out.counter("gossip_received_datagrams", "Received", gossip.datagrams_received)?;
    out.gauge("gossip_largest_datagram_bytes", "So far", gossip.largest_datagram_bytes as i64)?;
    out.gauge("gossip_largest_message_bytes", "So far, uncompressed", gossip.largest_message_bytes as i64)?;
    out.counter("gossip_resets", "Times gossip was started again", gossip.resets)?;
    out.counters("gossip_rejected", "Not taken", "reason", counts(&gossip.rejected))?;
    peers(&status.peers, out)?;
    mending(gossip, out)
}

fn peers(peers: &[PeerStatus], out: &mut Out<'_>) -> fmt::Result {
    let peers = || peers.iter().map(|peer| (peer.name.as_str(), peer));
    let lag = peers().map(|(name, peer)| (name, peer.lag_ms as f64 / 1e3));
    out.gauges("gossip_lag_seconds", "Delay of a peer's latest segments", "peer", lag)?;
    let open = peers().map(|(name, peer)| (name, peer.open as i64));
    out.gauges("gossip_open_segments", "Skipped, and may still come", "peer", open)?;
    let missed = peers().map(|(name, peer)| (name, peer.missed));
    out.counters("gossip_missed_segments", "Lost for good", "peer", missed)?;
    let level = peers().filter_map(|(name, peer)| Some((name, peer.agreement?)));
    out.gauges("gossip_peer_agreement", "Share of origins in which a peer is level", "peer", level)?;
    let sent = peers().map(|(name, peer)| (name, peer.bytes_sent));
    out.counters("gossip_peer_sent_bytes", "Sent to a peer", "peer", sent)?;
    let received = peers().map(|(name, peer)| (name, peer.bytes_received));
    out.counters("gossip_peer_received_bytes", "Accepted from a peer", "peer", received)
}

/// What gossip did not bring, and what was done about it.
fn mending(gossip: &GossipStatus, out: &mut Out<'_>) -> fmt::Result {
    out.gauge("gossip_agreement", "Share of peers level with each origin", gossip.agreement)?;
    out.gauge("gossip_strained", "1 while gossip is behind", i64::from(gossip.strained))?;
    out.counters("gossip_pulls", "Questions for missing segments", "result", counts(&gossip.pulls))?;
    out.counter("gossip_pulled_segments", "Segments that came this way", gossip.pulled_segments)?;
    out.counters("gossip_snapshots", "Snapshots asked for", "result", counts(&gossip.snapshots))?;
    out.counter("gossip_answers", "Peers' questions answered", gossip.answers)?;
    out.counter("gossip_answered_bytes", "Bytes of the answers", gossip.answered_bytes)
}

fn counts(by_name: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    by_name.iter().map(|(name, count)| (name.as_str(), *count))
}

/// Writes one metric a call.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }

    fn gauges<'v, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'v str, V)>,
    ) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        each(encoder, label, values, |value, encoder| ConstGauge::new(value).encode(encoder))
    }

    fn counters<'v, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'v str, V)>,
    ) -> fmt::Result {
        let encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        each(encoder, label, values, |value, encoder| ConstCounter::new(value).encode(encoder))
    }
}

fn each<'v, V>(
    mut encoder: MetricEncoder<'_>,
    label: &str,
    values: impl Iterator<Item = (&'v str, V)>,
    encode: impl Fn(V, MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    for (of, value) in values {
        encode(value, encoder.encode_family(&[(label, of)])?)?;
    }
    Ok(())
}
