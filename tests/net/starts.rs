//! Routers that start under difficulties.

use super::hub::{isolated, sh};
use super::node::{Router, engines, hosts};
use super::process::wait_for;

#[test]
fn a_killed_router_is_replaced_under_its_name_and_address_and_knows_what_it_knew() {
    let name = "starts::a_killed_router_is_replaced_under_its_name_and_address_and_knows_what_it_knew";
    isolated(name, || {
        let (_engines, urls) = engines(4, false);
        let (hosts, seeds) = hosts(3);
        let mut routers: Vec<Router> = hosts.iter().map(|host| host.router(&urls, &seeds, &[])).collect();
        routers.iter().for_each(|router| router.meets(2));
        let (replica, _) = routers[2].ask("before the kill");
        routers[0].hears_of(3, 0);
        routers[0].comes_to_know("before the kill", &replica);

        let mut old = routers.pop().unwrap();
        old.process.signal("KILL");
        old.process.end();
        routers.push(hosts[2].router(&urls, &seeds, &[]));
        routers.iter().for_each(|router| router.meets(2));
        let peers = routers[0].status()["peers"].as_array().cloned().unwrap();
        assert_eq!(peers.iter().filter(|peer| peer["name"] == "r3").count(), 1, "one entry for one name");
        routers[2].comes_to_know("before the kill", &replica);
    });
}

#[test]
fn a_seed_that_does_not_resolve_yet_is_found_later() {
    isolated("starts::a_seed_that_does_not_resolve_yet_is_found_later", || {
        let names = std::env::temp_dir().join(format!("grapevine-net-hosts-{}", std::process::id()));
        std::fs::write(&names, "127.0.0.1 localhost\n").unwrap();
        // This mount is seen in this test's namespace only.
        sh(&format!("mount --bind {} /etc/hosts", names.display()));
        let (_engines, urls) = engines(2, false);
        let (hosts, _) = hosts(2);
        let first = hosts[0].router(&urls, "", &[]);
        let second = hosts[1].router(&urls, "first.grapevine.test:7946", &[]);
        assert_eq!((first.live_peers(), second.live_peers()), (0, 0));
        second.ask("alone");
        let line = format!("127.0.0.1 localhost\n{} first.grapevine.test\n", hosts[0].ip());
        std::fs::write(&names, line).unwrap();
        first.meets(1);
        second.meets(1);
        let _ = std::fs::remove_file(names);
    });
}

#[test]
fn a_gossip_port_that_is_taken_is_used_when_it_is_free() {
    isolated("starts::a_gossip_port_that_is_taken_is_used_when_it_is_free", || {
        let (_engines, urls) = engines(2, false);
        let (hosts, seeds) = hosts(2);
        let first = hosts[0].router(&urls, &seeds, &[]);
        let mut squatter = hosts[1].router(&urls, "", &[("GRAPEVINE_CLUSTER_ID", "another".to_owned())]);
        let ip = hosts[1].ip();
        let elsewhere =
            [("GRAPEVINE_LISTEN", format!("{ip}:8081")), ("GRAPEVINE_ADMIN_LISTEN", format!("{ip}:9092"))];
        let second = hosts[1].router(&urls, &seeds, &elsewhere);
        assert_eq!(second.status()["gossip"]["running"], false);
        second.ask("without gossip");
        squatter.process.signal("KILL");
        squatter.process.end();
        wait_for("gossip to run", || (second.status()["gossip"]["running"] == true).then_some(()));
        first.meets(1);
        second.meets(1);
    });
}

#[test]
fn a_fleet_gossips_over_ipv6() {
    isolated("starts::a_fleet_gossips_over_ipv6", || {
        let (_engines, urls) = engines(4, true);
        let (hosts, _) = hosts(2);
        let seeds = format!("[{}]:7946", hosts[0].ip_v6());
        let routers: Vec<Router> = hosts.iter().map(|host| host.router_v6(&urls, &seeds)).collect();
        routers.iter().for_each(|router| router.meets(1));
        let (replica, _) = routers[0].ask("over version six");
        routers[1].hears_of(1, 0);
        routers[1].comes_to_know("over version six", &replica);
    });
}
