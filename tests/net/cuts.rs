//! Networks that fail between routers that live.

use super::hub::isolated;
use super::node::{Router, engines, hosts};

#[test]
fn a_partition_heals_by_itself_and_both_sides_learn() {
    isolated("cuts::a_partition_heals_by_itself_and_both_sides_learn", || {
        let (_engines, urls) = engines(4, false);
        let (hosts, seeds) = hosts(3);
        let routers: Vec<Router> = hosts.iter().map(|host| host.router(&urls, &seeds, &[])).collect();
        routers.iter().for_each(|router| router.meets(2));

        for other in &hosts[1..] {
            hosts[0].cut(other);
            other.cut(&hosts[0]);
        }
        routers[0].meets(0);
        routers[1].meets(1);
        let before: Vec<u64> = routers[1..].iter().map(|router| router.heard_of(1)).collect();
        let (one, _) = routers[0].ask("said on one side");
        let (other, _) = routers[1].ask("said on the other side");
        routers[2].hears_of(2, 0);
        routers[2].comes_to_know("said on the other side", &other);

        for other in &hosts[1..] {
            hosts[0].mend(other);
            other.mend(&hosts[0]);
        }
        routers.iter().for_each(|router| router.meets(2));
        routers[1..].iter().zip(before).for_each(|(router, before)| router.hears_of(1, before));
        routers[0].hears_of(2, 0);
        routers[1].comes_to_know("said on one side", &one);
        routers[2].comes_to_know("said on one side", &one);
        routers[0].comes_to_know("said on the other side", &other);
    });
}

#[test]
fn a_one_way_cut_is_bridged_by_the_third() {
    isolated("cuts::a_one_way_cut_is_bridged_by_the_third", || {
        let (_engines, urls) = engines(4, false);
        let (hosts, seeds) = hosts(3);
        let routers: Vec<Router> = hosts.iter().map(|host| host.router(&urls, &seeds, &[])).collect();
        routers.iter().for_each(|router| router.meets(2));
        hosts[0].cut(&hosts[1]);
        for round in 0..3 {
            let tag = format!("past the cut, round {round}");
            let before = routers[1].heard_of(1);
            let (replica, _) = routers[0].ask(&tag);
            routers[1].hears_of(1, before);
            routers[1].comes_to_know(&tag, &replica);
        }
        routers.iter().for_each(|router| router.meets(2));
    });
}
