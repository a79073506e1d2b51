use super::*;

const SECRET: &[u8] = b"0123456789abcdef";
const NEWER: &[u8] = b"fedcba9876543210";

fn addr(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

/// A router at an address.
struct Node {
    sealed: Sealed,
    addr: SocketAddr,
}

fn node(port: u16, secrets: &[&[u8]]) -> Node {
    Node { sealed: Sealed::new(secrets.iter().copied(), "test"), addr: addr(port) }
}

impl Node {
    fn restarted(&self) -> Self {
        node(self.addr.port(), &self.sealed.secrets.iter().map(|it| it.secret.as_slice()).collect::<Vec<_>>())
    }
}

/// Sends `packed`, delivering answers too; what arrived.
fn exchange(from: &mut Node, to: &mut Node, packed: &[u8]) -> Option<Vec<u8>> {
    let datagrams = from.sealed.write(packed, to.addr);
    datagrams.iter().filter_map(|datagram| hand_over(datagram, from, to)).last()
}

fn hand_over(datagram: &[u8], from: &mut Node, to: &mut Node) -> Option<Vec<u8>> {
    match to.sealed.read(datagram, from.addr) {
        Ok(Outcome::Message(packed)) => Some(packed),
        Ok(Outcome::Answer { datagram: tell, to: back, .. }) => {
            assert_eq!(back, from.addr);
            assert!(tell.len() <= datagram.len(), "no amplification");
            let _ = from.sealed.read(&tell, to.addr);
            None
        }
        Ok(Outcome::Nothing) | Err(_) => None,
    }
}

/// Two routers that have met.
fn pair() -> (Node, Node) {
    let (mut a, mut b) = (node(1, &[SECRET]), node(2, &[SECRET]));
    assert_eq!(exchange(&mut a, &mut b, b"hello"), None, "first it asks");
    assert_eq!(exchange(&mut a, &mut b, b"hello").as_deref(), Some(&b"hello"[..]));
    (a, b)
}

#[test]
fn messages_of_any_size_arrive_and_the_receiver_can_answer_at_once() {
    let (mut a, mut b) = pair();
    for len in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 65_600] {
        let message: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        assert_eq!(exchange(&mut b, &mut a, &message).unwrap_or_default(), message);
    }
    let datagrams = a.sealed.write(&vec![7; 65_600], b.addr);
    assert!(datagrams.iter().all(|it| it.len() <= MAX_DATAGRAM));
    assert_eq!(datagrams.len(), 58);
}

#[test]
fn what_is_sealed_shows_nothing_of_the_message() {
    let (mut a, b) = pair();
    let datagrams = a.sealed.write(b"http://10.1.2.3:9090 router-17", b.addr);
    let shown = datagrams.concat();
    assert!(!shown.windows(6).any(|window| window == b"router" || window == b"http:/"));
}

#[test]
fn every_changed_bit_is_noticed() {
    let (mut a, mut b) = pair();
    let datagram = a.sealed.write(b"a message", b.addr).remove(0);
    for byte in 0..datagram.len() {
        let mut damaged = datagram.clone();
        damaged[byte] ^= 0x10;
        let read = b.sealed.read(&damaged, a.addr);
        assert!(read.is_err(), "byte {byte}: {read:?}");
    }
    for len in 0..datagram.len() {
        assert!(b.sealed.read(&datagram[..len], a.addr).is_err());
    }
    assert!(matches!(b.sealed.read(&datagram, a.addr), Ok(Outcome::Message(_))), "the original still counts");
}

#[test]
fn a_recording_is_good_once() {
    let (mut a, mut b) = pair();
    let datagram = a.sealed.write(b"a message", b.addr).remove(0);
    assert!(matches!(b.sealed.read(&datagram, a.addr), Ok(Outcome::Message(_))));
    for from in [a.addr, addr(99)] {
        assert_eq!(b.sealed.read(&datagram, from), Err(Reject::Replayed));
    }
}

#[test]
fn a_recording_is_no_good_to_anyone_else() {
    let (mut a, b) = pair();
    let mut c = node(3, &[SECRET]);
    exchange(&mut a, &mut c, b"");
    let datagram = a.sealed.write(b"news for b", b.addr).remove(0);
    // c says who it is, and takes nothing.
    let read = c.sealed.read(&datagram, addr(66));
    assert!(matches!(read, Ok(Outcome::Answer { misdirected: true, .. })), "{read:?}");
}

/// Else a stranger has a router answer itself, so that it takes its own tag for the peer's, and reads what it
/// says to the peer as the peer's word.
#[test]
fn own_datagrams_sent_back_are_dropped() {
    let mut alone = node(1, &[SECRET]);
    let ask = alone.sealed.write(b"hello", addr(2)).remove(0);
    assert!(alone.sealed.read(&ask, addr(2)).is_err(), "an ask of its own is not answered");
    let (mut a, b) = pair();
    let data = a.sealed.write(b"hello", b.addr).remove(0);
    assert!(a.sealed.read(&data, b.addr).is_err());
}

#[test]
fn a_recording_is_no_good_after_the_receiver_restarted() {
    let (mut a, b) = pair();
    let recorded = a.sealed.write(b"old news", b.addr);
    let mut reborn = b.restarted();
    for datagram in &recorded {
        assert_eq!(hand_over(datagram, &mut a, &mut reborn), None);
    }
    assert!(reborn.sealed.senders.is_empty() && reborn.sealed.routes.is_empty(), "and leaves no trace");
}

#[test]
fn a_restarted_peer_is_found_again_within_one_exchange() {
    let (mut a, b) = pair();
    let mut reborn = b.restarted();
    assert_eq!(exchange(&mut a, &mut reborn, b"some data"), None);
    assert_eq!(exchange(&mut a, &mut reborn, b"two").as_deref(), Some(&b"two"[..]));
    assert_eq!(exchange(&mut reborn, &mut a, b"three").as_deref(), Some(&b"three"[..]));
}

#[test]
fn an_old_answer_does_not_mislead() {
    let (mut a, b) = pair();
    // b answers a question of a's, and the answer is held back.
    let mut asker = a.restarted();
    let ask = asker.sealed.write(b"", b.addr).remove(0);
    let mut b = b;
    let Ok(Outcome::Answer { datagram: held_back, .. }) = b.sealed.read(&ask, a.addr) else { panic!() };
    assert!(a.sealed.read(&held_back, b.addr).is_err(), "not a's question");
    // Meanwhile b restarts, and is met again.
    let mut reborn = b.restarted();
    exchange(&mut asker, &mut reborn, b"");
    assert!(exchange(&mut asker, &mut reborn, b"x").is_some());
    assert_eq!(asker.sealed.read(&held_back, b.addr), Err(Reject::Replayed));
    assert!(exchange(&mut asker, &mut reborn, b"y").is_some(), "still at the right tag");
}

#[test]
fn other_secrets_and_fleets_are_foreign() {
    let (mut a, _) = pair();
    let mut wrong_secret = node(2, &[NEWER]);
    let mut wrong_fleet = Node { sealed: Sealed::new([SECRET], "other"), addr: addr(2) };
    for other in [&mut wrong_secret, &mut wrong_fleet] {
        let ask = a.sealed.write(b"", addr(77)).remove(0);
        assert_eq!(other.sealed.read(&ask, a.addr), Err(Reject::Foreign));
        // Even with the key id copied from a recording.
        let mut forged = other.sealed.write(b"", a.addr).remove(0);
        forged[2..6].copy_from_slice(&a.sealed.secrets[0].id);
        assert_eq!(a.sealed.read(&forged, other.addr), Err(Reject::Damaged));
    }
}

#[test]
fn secrets_are_replaced_router_by_router() {
    let old = |port| node(port, &[SECRET]);
    let both = |port| node(port, &[NEWER, SECRET]);
    let newer = |port| node(port, &[NEWER]);
    for (mut a, mut b) in
        [(both(1), old(2)), (old(1), both(2)), (both(1), both(2)), (both(1), newer(2)), (newer(1), both(2))]
    {
        exchange(&mut a, &mut b, b"");
        assert!(exchange(&mut a, &mut b, b"x").is_some());
        assert!(exchange(&mut b, &mut a, b"y").is_some());
    }
    let (mut a, mut b) = (both(1), both(2));
    exchange(&mut a, &mut b, b"");
    let datagram = a.sealed.write(b"x", b.addr).remove(0);
    assert_eq!(datagram[2..6], a.sealed.secrets[0].id, "who has the newer secret uses it");
}

#[test]
fn strangers_cost_no_memory_and_answers_are_rationed() {
    let mut b = node(2, &[SECRET]);
    let mut answers = 0;
    for port in 1..=3 * TELLS_PER_SECOND as u16 {
        let ask = if port < 500 {
            node(port, &[SECRET]).sealed.write(b"", b.addr).remove(0)
        } else {
            vec![0xA1; 84]
        };
        answers += u32::from(matches!(b.sealed.read(&ask, addr(port)), Ok(Outcome::Answer { .. })));
    }
    assert_eq!(answers, 499);
    assert!(b.sealed.senders.is_empty() && b.sealed.routes.is_empty());
    let mut asker = node(1, &[SECRET]);
    let asks: Vec<_> = (0..2 * TELLS_PER_SECOND).map(|_| asker.sealed.write(b"", b.addr).remove(0)).collect();
    let answered = asks.iter().filter(|ask| b.sealed.read(ask, asker.addr).is_ok()).count();
    assert!(answered as u32 <= TELLS_PER_SECOND * 2, "bounded whatever the clock says");
}

#[test]
fn forgetting_a_sender_makes_its_recordings_useless() {
    let (mut a, mut b) = pair();
    let recorded = a.sealed.write(b"x", b.addr).remove(0);
    assert!(b.sealed.read(&recorded, a.addr).is_ok());
    for port in 0..MAX_SENDERS as u16 {
        b.sealed.tells.1 = 0;
        let mut other = node(1_000 + port, &[SECRET]);
        exchange(&mut other, &mut b, b"");
        exchange(&mut other, &mut b, b"x");
    }
    assert!(b.sealed.senders.len() <= MAX_SENDERS && b.sealed.routes.len() <= MAX_ROUTES);
    assert!(!b.sealed.senders.contains_key(&(a.sealed.secrets[0].id, a.sealed.salt)));
    assert!(!matches!(b.sealed.read(&recorded, a.addr), Ok(Outcome::Message(_))));
    b.sealed.tells.1 = 0;
    exchange(&mut a, &mut b, b"some data");
    assert!(exchange(&mut a, &mut b, b"y").is_some(), "and the sender is found again");
}

proptest::proptest! {
    #[test]
    fn arbitrary_datagrams_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..1300)) {
        let mut b = node(2, &[SECRET]);
        proptest::prop_assert!(b.sealed.read(&bytes, addr(1)).is_err());
        // With a header that passes the cheap checks.
        let mut forged = node(1, &[SECRET]).sealed.write(b"", b.addr).remove(0);
        forged.truncate(30);
        forged.extend(&bytes);
        let read = b.sealed.read(&forged, addr(1));
        proptest::prop_assert!(!matches!(read, Ok(Outcome::Message(_))));
    }
}
