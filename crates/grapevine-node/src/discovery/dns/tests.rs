//! Against a DNS server in this process.

use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{Name, Record};
use hickory_resolver::proto::serialize::binary::{BinDecodable, BinEncodable};
use tokio::net::UdpSocket;

use super::*;
use crate::app::{App, Deps};
use crate::config::Config;

/// What the server knows: the records of a name, or how it fails.
#[derive(Clone)]
enum Zone {
    Records(Vec<RData>, u32),
    Code(ResponseCode),
    Silence,
}

struct DnsServer {
    addr: SocketAddr,
    zones: Arc<Mutex<BTreeMap<String, Zone>>>,
    task: tokio::task::JoinHandle<()>,
}

impl DnsServer {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let zones = Arc::<Mutex<BTreeMap<String, Zone>>>::default();
        let known = Arc::clone(&zones);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let query = Message::from_bytes(&buffer[..length]).unwrap();
                let zone = query.queries[0].name().to_ascii();
                let zone = known.lock().unwrap().get(&zone).cloned();
                if let Some(answer) = answer(&query, zone) {
                    socket.send_to(&answer.to_bytes().unwrap(), from).await.unwrap();
                }
            }
        });
        Self { addr, zones, task }
    }

    fn say(&self, name: &str, zone: Zone) {
        self.zones.lock().unwrap().insert(name.to_owned(), zone);
    }

    fn addresses(&self, name: &str, ips: &[&str], ttl: u32) {
        let record = |ip: &&str| match ip.parse().unwrap() {
            IpAddr::V4(ip) => RData::A(A(ip)),
            IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
        };
        self.say(name, Zone::Records(ips.iter().map(record).collect(), ttl));
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(query: &Message, zone: Option<Zone>) -> Option<Message> {
    let question = query.queries[0].clone();
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    match zone {
        Some(Zone::Silence) => return None,
        Some(Zone::Code(code)) => answer.metadata.response_code = code,
        None => answer.metadata.response_code = ResponseCode::NXDomain,
        Some(Zone::Records(records, ttl)) => {
            let wanted = |data: &RData| data.record_type() == question.query_type();
            for data in records.into_iter().filter(wanted) {
                answer.add_answer(Record::from_rdata(question.name().clone(), ttl, data));
            }
        }
    }
    answer.queries.push(question);
    Some(answer)
}

fn name(text: &str) -> DnsName {
    let services = text.starts_with("srv+");
    DnsName { url: text.trim_start_matches("srv+").parse().unwrap(), services }
}

async fn asked(server: &DnsServer, text: &str) -> Result<(Vec<(String, f32)>, u64), String> {
    let resolver = connect(&[server.addr]).unwrap();
    let (replicas, ttl) = ask(&resolver, &name(text)).await?;
    Ok((replicas.into_iter().map(|r| (r.url, r.weight)).collect(), ttl.as_secs()))
}

fn srv(priority: u16, weight: u16, port: u16, target: &str) -> RData {
    RData::SRV(SRV::new(priority, weight, port, Name::from_ascii(target).unwrap()))
}

#[tokio::test]
async fn each_address_is_a_replica_at_the_port_that_was_said() {
    let server = DnsServer::start().await;
    server.addresses("engines.test.", &["10.0.0.2", "10.0.0.1", "fd00::1"], 30);
    let found = asked(&server, "http://engines.test.:8000/base").await.unwrap();
    let url = |ip| (format!("http://{ip}:8000/base"), 1.0);
    assert_eq!(found, (vec![url("10.0.0.1"), url("10.0.0.2")], 30));
    server.addresses("six.test.", &["fd00::1"], 7);
    assert_eq!(
        asked(&server, "http://six.test.").await.unwrap(),
        (vec![("http://[fd00::1]".into(), 1.0)], 7)
    );
}

#[tokio::test]
async fn srv_records_say_port_and_weight_and_the_first_priority_counts() {
    let server = DnsServer::start().await;
    let records =
        vec![srv(10, 30, 8001, "a.test."), srv(10, 10, 8002, "b.test."), srv(20, 10, 8003, "backup.test.")];
    server.say("_http._tcp.engines.test.", Zone::Records(records, 60));
    server.addresses("a.test.", &["10.0.0.1"], 20);
    server.addresses("b.test.", &["10.0.0.2"], 40);
    let found = asked(&server, "srv+http://_http._tcp.engines.test.").await.unwrap();
    let expected = vec![("http://10.0.0.1:8001".to_owned(), 1.5), ("http://10.0.0.2:8002".to_owned(), 0.5)];
    assert_eq!(found, (expected, 20));
    let even = [srv(1, 0, 1, "a."), srv(1, 0, 2, "b.")];
    let even: Vec<_> =
        even.iter().map(|data| if let RData::SRV(srv) = data { srv } else { unreachable!() }).collect();
    assert!(weighed(&even).iter().all(|(_, weight)| *weight == 1.0));
}

#[tokio::test]
async fn failures_are_told_apart() {
    let server = DnsServer::start().await;
    assert_eq!(asked(&server, "http://nobody.test.").await, Err("no such name".into()));
    server.addresses("empty.test.", &[], 5);
    assert_eq!(asked(&server, "http://empty.test.").await, Err(NO_ADDRESS.into()));
    server.say("broken.test.", Zone::Code(ResponseCode::ServFail));
    assert!(asked(&server, "http://broken.test.").await.is_err());
}

#[test]
fn ttls_have_a_floor_and_a_ceiling_and_failures_wait_longer_each_time() {
    let seconds = Duration::from_secs;
    let pauses = [0, 5, 3_600].map(|ttl| pause(Some(seconds(ttl)), 0));
    assert_eq!(pauses, [SHORTEST, seconds(5), LONGEST]);
    let waits = [1, 2, 3, 30].map(|failures| pause(None, failures));
    assert_eq!(waits, [seconds(2), seconds(4), seconds(8), LONGEST]);
}

/// A router whose replicas come from `server`.
async fn router(server: &DnsServer) -> App {
    let mut config = Config::local("a", Vec::new());
    config.replicas_dns = vec![name("http://engines.test.:8000")];
    config.dns_servers = vec![server.addr];
    config.health_interval = Duration::from_secs(3_600);
    config.metrics_interval = Duration::ZERO;
    App::build(config, Deps::default()).await.unwrap()
}

async fn until(app: &App, what: &str, holds: impl Fn(&crate::admin::status::Status) -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds(&app.observatory().status()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn addresses_come_and_go_with_the_answers_and_stay_when_there_are_none() {
    let server = DnsServer::start().await;
    server.addresses("engines.test.", &["127.0.0.1", "127.0.0.2"], 0);
    let app = router(&server).await;
    let count = |status: &crate::admin::status::Status| status.replicas.len();
    until(&app, "both are there", |status| count(status) == 2).await;
    let first = app.observatory().status().replicas[0].id.clone();
    for failure in [Zone::Code(ResponseCode::NXDomain), Zone::Code(ResponseCode::ServFail), Zone::Silence] {
        server.say("engines.test.", failure);
        until(&app, "it is said", |status| status.discovery[0].problem.is_some()).await;
        assert_eq!(count(&app.observatory().status()), 2);
        server.addresses("engines.test.", &["127.0.0.1", "127.0.0.2"], 0);
        until(&app, "it is well again", |status| status.discovery[0].problem.is_none()).await;
    }
    server.addresses("engines.test.", &["127.0.0.1", "127.0.0.3"], 0);
    let urls = |status: &crate::admin::status::Status| -> Vec<String> {
        status.replicas.iter().map(|replica| replica.url.clone()).collect()
    };
    until(&app, "one left and one came", |status| {
        urls(status) == ["http://127.0.0.1:8000", "http://127.0.0.3:8000"]
    })
    .await;
    assert_eq!(app.observatory().status().replicas[0].id, first);
}
