//! TLS towards clients and engines.

use std::path::PathBuf;

use grapevine_node::BuildError;
use grapevine_node::{App, Deps};

use crate::support::*;

/// A certificate for `localhost` and 127.0.0.1, in files.
struct Files {
    cert: PathBuf,
    key: PathBuf,
    pem: String,
}

fn files(name: &str) -> Files {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let path =
        |kind| std::env::temp_dir().join(format!("grapevine-tls-{}-{name}.{kind}", std::process::id()));
    let (cert, key, pem) = (path("crt"), path("key"), made.cert.pem());
    std::fs::write(&cert, &pem).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    Files { cert, key, pem }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = (std::fs::remove_file(&self.cert), std::fs::remove_file(&self.key));
    }
}

fn client_that_trusts(pem: &str) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
    reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap()
}

#[tokio::test]
async fn the_public_listener_speaks_tls_with_http_1_and_2() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let files = files("front");
    let mut config = config(&[engine.addr]);
    (config.tls_cert, config.tls_key) = (Some(files.cert.clone()), Some(files.key.clone()));
    let router = TestRouter::start(config).await;
    let url = format!("https://127.0.0.1:{}/v1/completions", router.addr.port());
    let answer = client_that_trusts(&files.pem).post(&url).body("{}").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
    let plain = RawClient::send(router.addr, chat()).await.read_to_end().await;
    assert!(!plain.contains("HTTP/1.1 200"), "no plain HTTP on a TLS port: {plain:?}");
    router.quiet().await;
}

#[tokio::test]
async fn engines_behind_tls_are_reached_with_their_own_authority() {
    // The engine here is another router that speaks TLS.
    let engine = RawEngine::json("200 OK", "{\"inner\":true}").await;
    let files = files("engine");
    let mut inner = named_config("inner", &[engine.addr]);
    (inner.tls_cert, inner.tls_key) = (Some(files.cert.clone()), Some(files.key.clone()));
    let inner = TestRouter::start(inner).await;
    let mut outer = named_config("outer", &[inner.addr]);
    outer.replicas[0].url = format!("https://127.0.0.1:{}", inner.addr.port());
    outer.engine_ca = Some(files.cert.clone());
    let outer = TestRouter::start(outer).await;
    let answer = http().post(outer.url("/v1/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "{\"inner\":true}");
}

#[tokio::test]
async fn files_that_do_not_fit_are_named_at_the_start() {
    let (one, other) = (files("one"), files("other"));
    let mut config = config(&["127.0.0.1:1".parse().unwrap()]);
    (config.tls_cert, config.tls_key) = (Some(one.cert.clone()), Some(other.key.clone()));
    let error = App::build(config.clone(), Deps::default()).await.err().unwrap();
    assert!(matches!(error, BuildError::Tls(_)), "{error}");
    config.tls_key = Some(one.cert.clone());
    let error = App::build(config, Deps::default()).await.err().unwrap();
    assert!(error.to_string().contains("holds no readable PEM private key"), "{error}");
}
