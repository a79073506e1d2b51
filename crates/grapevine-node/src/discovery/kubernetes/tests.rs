//! The real client against an API server of this process that does what a test tells it.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::stream;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const PATH: &str = "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices";

/// What the API server holds, and the watch that is open.
#[derive(Default)]
struct Cluster {
    slices: Mutex<BTreeMap<String, Value>>,
    watch: Mutex<Option<mpsc::UnboundedSender<Value>>>,
    lists: Mutex<Vec<BTreeMap<String, String>>>,
    watches: Mutex<Vec<BTreeMap<String, String>>>,
    /// Lists fail so.
    refuse: Mutex<Option<u16>>,
    page: Mutex<Option<usize>>,
}

struct ApiServer {
    cluster: Arc<Cluster>,
    uri: String,
    task: JoinHandle<()>,
}

impl ApiServer {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Arc::<Cluster>::default();
        let routes = Router::new().route(PATH, get(serve)).with_state(Arc::clone(&cluster));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { cluster, uri, task }
    }

    /// Follows the Service `vllm`; gives what is told.
    fn follow(&self, pace: Pace) -> mpsc::Receiver<News> {
        let (tell, news) = mpsc::channel(NEWS);
        let client = Client::try_from(kube::Config::new(self.uri.parse().unwrap())).unwrap();
        let wanted = KubernetesEndpoints {
            namespace: Some("inference".into()),
            selector: "kubernetes.io/service-name=vllm".into(),
            service: Some("vllm".into()),
            port: None,
        };
        tokio::spawn(Watch::of(0, wanted, &client, tell, pace).run());
        news
    }

    /// The store changes, and the watch tells unless it is to miss it.
    fn put(&self, name: &str, addresses: &[&str], told: bool) {
        let slice = slice(name, addresses);
        let known = self.cluster.slices.lock().unwrap().insert(name.to_owned(), slice.clone()).is_some();
        if told {
            self.tell(if known { "MODIFIED" } else { "ADDED" }, &slice);
        }
    }

    fn delete(&self, name: &str, told: bool) {
        let slice = self.cluster.slices.lock().unwrap().remove(name).unwrap();
        if told {
            self.tell("DELETED", &slice);
        }
    }

    fn tell(&self, kind: &str, object: &Value) {
        let event = json!({ "type": kind, "object": object });
        self.cluster.watch.lock().unwrap().as_ref().unwrap().send(event).unwrap();
    }

    fn end_watch(&self) {
        self.cluster.watch.lock().unwrap().take();
    }

    async fn watched(&self, times: usize) {
        until("a watch", || self.cluster.watches.lock().unwrap().len() >= times).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn slice(name: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
    json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "namespace": "inference", "resourceVersion": "7" },
        "ports": [{ "name": "http", "port": 8000 }], "endpoints": endpoints })
}

async fn serve(
    State(cluster): State<Arc<Cluster>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if query.get("watch").is_some_and(|watch| watch == "true") {
        let (tell, told) = mpsc::unbounded_channel::<Value>();
        *cluster.watch.lock().unwrap() = Some(tell);
        cluster.watches.lock().unwrap().push(query);
        let lines = stream::unfold(told, |mut told| async move {
            let event = told.recv().await?;
            Some((Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n"))), told))
        });
        return Body::from_stream(lines).into_response();
    }
    cluster.lists.lock().unwrap().push(query.clone());
    if let Some(code) = *cluster.refuse.lock().unwrap() {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "message": "endpointslices is forbidden", "reason": "Forbidden", "metadata": {} });
        return (StatusCode::from_u16(code).unwrap(), Json(status)).into_response();
    }
    let slices: Vec<Value> = cluster.slices.lock().unwrap().values().cloned().collect();
    let page = cluster.page.lock().unwrap().unwrap_or(usize::MAX);
    let from: usize = query.get("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
    let items: Vec<_> = slices.iter().skip(from).take(page).cloned().collect();
    let next = from.saturating_add(page);
    let token = if next < slices.len() { next.to_string() } else { String::new() };
    Json(json!({ "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": "41", "continue": token }, "items": items }))
    .into_response()
}

/// Reads everything again rarely, and tries again at once.
fn patient() -> Pace {
    Pace {
        relist: Duration::from_secs(3_600),
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_secs(5),
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// Waits until these hosts are told, in any number of steps.
async fn told(news: &mut mpsc::Receiver<News>, hosts: &[&str]) {
    let expected: Vec<_> = hosts.iter().map(|host| format!("http://{host}:8000")).collect();
    let mut last = Vec::new();
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            if let (_, Ok(found)) = news.recv().await.unwrap() {
                last = found.into_iter().map(|replica| replica.url).collect();
                if last == expected {
                    return;
                }
            }
        }
    });
    assert!(waited.await.is_ok(), "told {last:?}, not {expected:?}");
}

#[tokio::test]
async fn what_changes_is_told_and_the_right_question_was_asked() {
    let server = ApiServer::start().await;
    server.put("a", &["10.0.0.1"], false);
    let mut news = server.follow(patient());
    told(&mut news, &["10.0.0.1"]).await;
    server.watched(1).await;
    server.put("b", &["10.0.0.2", "10.0.0.3"], true);
    told(&mut news, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await;
    server.put("b", &["10.0.0.3"], true);
    told(&mut news, &["10.0.0.1", "10.0.0.3"]).await;
    server.delete("a", true);
    told(&mut news, &["10.0.0.3"]).await;
    server.delete("b", true);
    told(&mut news, &[]).await;
    let watch = server.cluster.watches.lock().unwrap()[0].clone();
    assert_eq!(watch["labelSelector"], "kubernetes.io/service-name=vllm");
    assert_eq!(watch["resourceVersion"], "41", "from where the list was");
}

#[tokio::test]
async fn a_delete_that_was_missed_while_no_watch_was_open_is_noticed() {
    let server = ApiServer::start().await;
    server.put("a", &["10.0.0.1"], false);
    server.put("b", &["10.0.0.2"], false);
    let mut news = server.follow(patient());
    told(&mut news, &["10.0.0.1", "10.0.0.2"]).await;
    server.watched(1).await;
    server.delete("a", false);
    server.end_watch();
    told(&mut news, &["10.0.0.2"]).await;
}

#[tokio::test]
async fn a_watch_that_has_fallen_silent_is_found_out_by_the_next_list() {
    let server = ApiServer::start().await;
    server.put("a", &["10.0.0.1"], false);
    let mut news = server.follow(Pace { relist: Duration::from_millis(50), ..patient() });
    told(&mut news, &["10.0.0.1"]).await;
    server.watched(1).await;
    server.put("a", &["10.0.0.9"], false);
    told(&mut news, &["10.0.0.9"]).await;
}

#[tokio::test]
async fn gone_reads_everything_again_without_a_failure() {
    let server = ApiServer::start().await;
    server.put("a", &["10.0.0.1"], false);
    let mut news = server.follow(patient());
    told(&mut news, &["10.0.0.1"]).await;
    server.watched(1).await;
    server.put("a", &["10.0.0.2"], false);
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
        "message": "too old resource version", "reason": "Expired", "metadata": {} });
    server.tell("ERROR", &status);
    let next = news.recv().await.unwrap().1.expect("no failure is told");
    assert_eq!(next[0].url, "http://10.0.0.2:8000");
    assert_eq!(server.cluster.lists.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn an_api_server_that_refuses_is_said_and_asked_again() {
    let server = ApiServer::start().await;
    server.put("a", &["10.0.0.1"], false);
    *server.cluster.refuse.lock().unwrap() = Some(403);
    let mut news = server.follow(patient());
    let problem = news.recv().await.unwrap().1.unwrap_err();
    assert_eq!(problem, "endpointslices is forbidden (403)");
    *server.cluster.refuse.lock().unwrap() = None;
    told(&mut news, &["10.0.0.1"]).await;
}

#[tokio::test]
async fn a_list_of_several_pages_is_read_whole() {
    let server = ApiServer::start().await;
    for i in 0..5 {
        server.put(&format!("s{i}"), &[&format!("10.0.0.{i}")], false);
    }
    *server.cluster.page.lock().unwrap() = Some(2);
    let mut news = server.follow(patient());
    told(&mut news, &["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]).await;
    assert_eq!(server.cluster.lists.lock().unwrap().len(), 3);
}
