//! A name server that can fail.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use super::hub::HUB;

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As it should.
    Well,
    /// Not at all.
    Silent,
    /// That there is no such name.
    NoSuchName,
}

/// Seconds for which an answer counts: the least that there is.
const TTL_SECONDS: u32 = 1;

/// Bytes before the question.
const HEADER: usize = 12;

const TYPE_A: u16 = 1;
const NO_SUCH_NAME: u8 = 3;

/// It answers as long as the process lives: to the names that it was given, and with addresses of version 4.
pub(crate) struct Dns {
    mood: Arc<Mutex<Mood>>,
}

impl Dns {
    /// Answers at the hub, at the port of DNS.
    pub(crate) fn start(zones: Vec<(String, Vec<Ipv4Addr>)>) -> Self {
        let socket = UdpSocket::bind((HUB, 53)).unwrap();
        let mood = Arc::new(Mutex::new(Mood::Well));
        let now = Arc::clone(&mood);
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let mood = *now.lock().unwrap();
                if let Some(reply) = answer(&buffer[..length], &zones, mood) {
                    let _ = socket.send_to(&reply, from);
                }
            }
        });
        Self { mood }
    }

    /// From now on it answers so.
    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }
}

fn answer(query: &[u8], zones: &[(String, Vec<Ipv4Addr>)], mood: Mood) -> Option<Vec<u8>> {
    let (name, after_name) = read_name(query)?;
    let question = query.get(HEADER..after_name + 4)?;
    let wanted = u16::from_be_bytes([query[after_name], query[after_name + 1]]);
    let known = zones.iter().find(|(zone, _)| *zone == name);
    let (code, addresses) = match (mood, known) {
        (Mood::Silent, _) => return None,
        (Mood::NoSuchName, _) | (_, None) => (NO_SUCH_NAME, &[][..]),
        (Mood::Well, Some((_, addresses))) if wanted == TYPE_A => (0, addresses.as_slice()),
        (Mood::Well, Some(_)) => (0, &[][..]),
    };
    let mut reply = query[..2].to_vec();
    // A response, recursion as asked for and available; one question, so many answers.
    reply.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
    reply.extend(question);
    for address in addresses {
        // The name is that of the question; type A, class IN.
        reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1]);
        reply.extend(TTL_SECONDS.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

/// The question's name, in lower case, and where it ends.
fn read_name(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        if length == 0 {
            return Some((labels.join("."), at + 1));
        }
        let label = query.get(at + 1..at + 1 + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += 1 + length;
    }
}
