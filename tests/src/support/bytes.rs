//! Contents: every kind of byte, numbers that repeat, streams that break.

use bytes::Bytes;
use sandgate::Error;
use sandgate::values::ByteStream;
use tokio::sync::mpsc;

/// Numbers that look random and are the same in every run (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Numbers that belong to a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next one.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).unwrap()
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(count);
        bytes.into()
    }
}

/// Contents that careless layers damage: line ends of all systems, byte order marks, NUL, invalid UTF-8, and sizes
/// around the pieces in which streams travel.
pub fn all_kinds_of_bytes() -> Vec<(&'static str, Bytes)> {
    let mut random = Random::new(7);
    vec![
        ("empty", Bytes::new()),
        ("one", Bytes::from_static(b"x")),
        ("newline", Bytes::from_static(b"\n")),
        ("newlines", Bytes::from_static(b"\n\n\n")),
        ("no newline at the end", Bytes::from_static(b"a\nb")),
        ("line ends", Bytes::from_static(b"lf\ncrlf\r\ncr\rcrcrlf\r\r\nend")),
        ("nul", Bytes::from_static(b"a\0b\0\0")),
        ("utf-8 bom", Bytes::from_static(b"\xef\xbb\xbftext\r\n")),
        ("utf-16", Bytes::from_static(b"\xff\xfeh\0i\0\n\0")),
        ("latin-1", Bytes::from_static(b"caf\xe9 \xff\xfe\x80\n")),
        ("utf-8", "Ünïcode 🦀 文字\n".into()),
        ("shell", Bytes::from_static(b"$(touch x) `touch y` $HOME \\n %s %d '\" \\\\ !\n-n\n")),
        ("every byte", (0..=255).collect::<Vec<u8>>().into()),
        ("64 KiB - 1", random.bytes((64 << 10) - 1)),
        ("64 KiB", random.bytes(64 << 10)),
        ("64 KiB + 1", random.bytes((64 << 10) + 1)),
        ("10 MB", random.bytes(10_000_000)),
    ]
}

/// A stream of some bytes that then breaks.
pub fn broken_stream(bytes: &'static [u8]) -> ByteStream {
    let (sender, receiver) = mpsc::channel(2);
    sender.try_send(Ok(Bytes::from_static(bytes))).unwrap();
    sender.try_send(Err(Error::unavailable("the upload broke off"))).unwrap();
    receiver
}
