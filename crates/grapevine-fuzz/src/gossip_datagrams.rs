//! Datagrams between two routers and a stranger on the path, who damages, repeats, swaps and makes up.
//!
//! Sealed, what arrives is what was sent, each message at most once. Plain, on loopback, nothing but the fleet's
//! tag is known of it; it is read all the same, and nothing of it may panic.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use grapevine_mesh::MeshConfig;
use grapevine_mesh::transport::{Brought, Datagrams};

use crate::input::Input;

/// Steps of one run, at most.
const MAX_STEPS: usize = 64;

/// Datagrams on their way, at most.
const MAX_FLYING: usize = 64;

/// The first byte chooses sealed or plain; the rest are steps.
pub fn gossip_datagrams(data: &[u8]) {
    let mut input = Input::new(data);
    if input.byte() & 1 == 0 {
        return plain(input.rest());
    }
    let mut world = World::default();
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
}

/// A datagram with the right head and any body, whole and in two pieces.
fn plain(body: &[u8]) {
    let mut reader = router("b", false);
    let head = |place: [u8; 6]| -> Vec<u8> {
        let sample = router("a", false).direct(b"", address(1));
        let head = sample.first().and_then(|datagram| datagram.get(..10)).unwrap_or_default();
        [head, &place].concat()
    };
    let _ = reader.read(body, address(0));
    let whole = reader.read(&[&head([1, 0, 0, 0, 0, 1]), body].concat(), address(0));
    let (first, second) = body.split_at(body.len() / 2);
    let _ = reader.read(&[&head([2, 0, 0, 0, 1, 2]), second].concat(), address(0));
    let pieces = reader.read(&[&head([2, 0, 0, 0, 0, 2]), first].concat(), address(0));
    assert_eq!(whole, pieces, "a message whole and in two pieces");
    let mut writer = router("a", false);
    for datagram in writer.gossip(body, address(1)) {
        let brought = reader.read(&datagram, address(0));
        assert!(!matches!(brought, Brought::Direct(_) | Brought::Answer(_)), "{brought:?}");
    }
    let told = writer.direct(body, address(1));
    let brought: Vec<_> = told.iter().map(|datagram| reader.read(datagram, address(0))).collect();
    assert_eq!(brought.last(), Some(&Brought::Direct(body.to_vec())));
}

struct World {
    routers: [Datagrams; 2],
    /// To whom, and what.
    flying: Vec<(usize, Vec<u8>)>,
    /// To whom which message went how often.
    told: BTreeMap<(usize, Vec<u8>), usize>,
}

impl Default for World {
    fn default() -> Self {
        Self { routers: [router("a", true), router("b", true)], flying: Vec::new(), told: BTreeMap::new() }
    }
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            0 | 1 => self.tell(input),
            2 | 3 => self.deliver(input, |_, _| {}),
            4 => self.repeat(input),
            5 => self.deliver(input, |datagram, input| {
                let at = input.below(256);
                let bit = 1 << input.below(8);
                datagram.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
            }),
            6 => self.deliver(input, |datagram, input| datagram.truncate(input.below(256))),
            _ => {
                let length = usize::from(input.byte());
                let made_up = input.take(length).to_vec();
                self.read(length % 2, &made_up);
            }
        }
    }

    /// A message to one of the two: short, or of several datagrams.
    fn tell(&mut self, input: &mut Input<'_>) {
        let to = input.below(2);
        let (seed, length) = (input.byte(), 1 + usize::from(input.byte()) * input.below(32));
        let noise = (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8 ^ seed);
        let message: Vec<u8> = noise.collect();
        let sent = self.routers[1 - to].direct(&message, address(to));
        *self.told.entry((to, message)).or_insert(0) += 1;
        let room = MAX_FLYING.saturating_sub(self.flying.len());
        self.flying.extend(sent.into_iter().take(room).map(|datagram| (to, datagram)));
    }

    fn deliver(&mut self, input: &mut Input<'_>, change: fn(&mut Vec<u8>, &mut Input<'_>)) {
        if self.flying.is_empty() {
            return;
        }
        let at = input.below(self.flying.len());
        let (to, mut datagram) = self.flying.swap_remove(at);
        change(&mut datagram, input);
        self.read(to, &datagram);
    }

    /// It arrives, and stays with the stranger, who may also send it to the other one.
    fn repeat(&mut self, input: &mut Input<'_>) {
        let at = input.below(self.flying.len());
        let Some((to, datagram)) = self.flying.get(at).cloned() else { return };
        self.read(if input.below(4) == 0 { 1 - to } else { to }, &datagram);
    }

    fn read(&mut self, to: usize, datagram: &[u8]) {
        match self.routers[to].read(datagram, address(1 - to)) {
            Brought::Direct(message) => {
                let left = self.told.get_mut(&(to, message)).expect("what arrives was sent");
                *left = left.checked_sub(1).expect("what was sent arrives at most once");
            }
            Brought::Gossip(bytes) => panic!("a message of {bytes} bytes that nobody sent"),
            Brought::Answer(answer) if self.flying.len() < MAX_FLYING => {
                assert!(answer.len() <= datagram.len(), "an answer is no longer than the question");
                self.flying.push((1 - to, answer));
            }
            Brought::Answer(_) | Brought::Nothing | Brought::Rejected => {}
        }
    }
}

fn router(name: &str, sealed: bool) -> Datagrams {
    let secret = sealed.then(|| b"a secret for tests, of enough bytes".to_vec());
    Datagrams::new(&MeshConfig { secret, ..MeshConfig::new(name, address(0)) })
}

fn address(router: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_000 + router as u16))
}
