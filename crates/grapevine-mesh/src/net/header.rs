//! The bytes before a datagram's body. Integers are little endian.
//!
//! ```text
//! sealed  0       1     2        6       22        30        38       46       50     51     52
//!         | 0xA1  | kind | key id | salt  | to tag  | my tag  | counter | message | index | count | body.. tag(16)
//! plain   0       1     2              10       14     15     16
//!         | 0xA0  | 0    | cluster tag  | message | index | count | body..
//! ```
//!
//! The sealed header is authenticated together with the body.

use super::frame::Place;

/// First byte of a sealed datagram of this version.
const SEALED: u8 = 0xA1;

/// First byte of a datagram without a seal.
const PLAIN: u8 = 0xA0;

/// Bytes of a sealed datagram's header.
pub(super) const SEALED_BYTES: usize = 52;

/// Bytes of a plain datagram's header.
pub(super) const PLAIN_BYTES: usize = 16;

/// Names the boot of a sender; its key is derived from it.
pub(super) type Salt = [u8; 16];

/// What a sealed datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A fragment of a message.
    Data,
    /// "Which tag shall I send to?"
    Ask,
    /// The answer: this sender's tag. The body is the counter of what it answers.
    Tell,
}

/// Header of a sealed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealedHeader {
    pub(super) kind: Kind,
    pub(super) key_id: [u8; 4],
    pub(super) salt: Salt,
    /// Tag of the receiver, as the sender knows it.
    pub(super) to: u64,
    /// Tag of the sender.
    pub(super) from: u64,
    pub(super) counter: u64,
    pub(super) place: Place,
}

/// Header of a plain datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlainHeader {
    pub(super) cluster: [u8; 8],
    pub(super) place: Place,
}

impl SealedHeader {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Ask => 1,
            Kind::Tell => 2,
        };
        out.extend([SEALED, kind]);
        out.extend(self.key_id);
        out.extend(self.salt);
        out.extend(self.to.to_le_bytes());
        out.extend(self.from.to_le_bytes());
        out.extend(self.counter.to_le_bytes());
        write_place(self.place, out);
    }

    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let mut rest = Reader(datagram);
        let [first, kind] = rest.take()?;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Ask,
            2 => Kind::Tell,
            _ => return None,
        };
        let header = Self {
            kind,
            key_id: rest.take()?,
            salt: rest.take()?,
            to: u64::from_le_bytes(rest.take()?),
            from: u64::from_le_bytes(rest.take()?),
            counter: u64::from_le_bytes(rest.take()?),
            place: rest.place()?,
        };
        (first == SEALED).then_some(header)
    }
}

impl PlainHeader {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend([PLAIN, 0]);
        out.extend(self.cluster);
        write_place(self.place, out);
    }

    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let mut rest = Reader(datagram);
        let start: [u8; 2] = rest.take()?;
        let header = Self { cluster: rest.take()?, place: rest.place()? };
        (start == [PLAIN, 0]).then_some(header)
    }
}

fn write_place(place: Place, out: &mut Vec<u8>) {
    out.extend(place.message.to_le_bytes());
    out.extend([place.index, place.count]);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn place(&mut self) -> Option<Place> {
        let message = u32::from_le_bytes(self.take()?);
        let [index, count] = self.take()?;
        Some(Place { message, index, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { message: 0x0403_0201, index: 5, count: 6 };

    #[test]
    fn golden_bytes_of_the_sealed_header() {
        let header = SealedHeader {
            kind: Kind::Tell,
            key_id: [1, 2, 3, 4],
            salt: [9; 16],
            to: 0x1122_3344_5566_7788,
            from: 2,
            counter: 3,
            place: PLACE,
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        let mut golden = vec![0xA1, 2, 1, 2, 3, 4];
        golden.extend([9; 16]);
        golden.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        golden.extend([2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(bytes, golden);
        assert_eq!(bytes.len(), SEALED_BYTES);
        assert_eq!(SealedHeader::read(&bytes), Some(header));
        assert_eq!(SealedHeader::read(&bytes[..51]), None);
        assert_eq!(PlainHeader::read(&bytes), None);
    }

    #[test]
    fn golden_bytes_of_the_plain_header() {
        let header = PlainHeader { cluster: *b"cluster!", place: PLACE };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(bytes, *b"\xA0\0cluster!\x01\x02\x03\x04\x05\x06");
        assert_eq!(bytes.len(), PLAIN_BYTES);
        assert_eq!(PlainHeader::read(&bytes), Some(header));
        assert_eq!(SealedHeader::read(&[bytes.as_slice(), &[0; 64]].concat()), None);
    }
}
