//! Gzip without compression: enough to see whether someone on the way unpacks what is not theirs.

/// The polynomial of gzip's CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Longest stored block.
const MAX_STORED: usize = 65_535;

/// Writes a gzip stream piece by piece.
pub(crate) struct Gzip {
    crc: u32,
    length: u32,
    begun: bool,
}

impl Default for Gzip {
    fn default() -> Self {
        Self { crc: u32::MAX, length: 0, begun: false }
    }
}

impl Gzip {
    /// The next piece of the stream.
    pub(crate) fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = self.head();
        for block in data.chunks(MAX_STORED) {
            stored(&mut out, block, false);
        }
        self.crc = data.iter().fold(self.crc, |crc, byte| update(crc, *byte));
        self.length = self.length.wrapping_add(data.len() as u32);
        out
    }

    /// The end of the stream.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = self.head();
        stored(&mut out, &[], true);
        out.extend_from_slice(&(!self.crc).to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out
    }

    fn head(&mut self) -> Vec<u8> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]
    }
}

fn stored(out: &mut Vec<u8>, block: &[u8], last: bool) {
    let length = block.len() as u16;
    out.push(u8::from(last));
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(block);
}

fn update(crc: u32, byte: u8) -> u32 {
    (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_what_gunzip_expects() {
        let mut gzip = Gzip::default();
        let mut out = gzip.push(b"1234");
        out.extend(gzip.push(b"56789"));
        out.extend(gzip.finish());
        assert_eq!(&out[..4], [0x1f, 0x8b, 8, 0]);
        // 0xcbf43926 is the check value of CRC-32 for "123456789".
        assert_eq!(&out[out.len() - 8..], [0x26, 0x39, 0xf4, 0xcb, 9, 0, 0, 0]);
        assert_eq!(&out[10..19], [0, 4, 0, 0xfb, 0xff, b'1', b'2', b'3', b'4']);
    }
}
