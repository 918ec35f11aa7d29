//! Salted hashes: what is recorded of prompts and keys. Without the salt nobody can try out what a hash may stand for.
//!
//! SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed function; what is hashed of a prompt is a chain, so that the hash of a
//! piece stands for all before it as well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The key of all hashes of a recording.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt([u64; 2]);

/// A hash of something that goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    state: [u64; 4],
    bytes: u64,
}

impl Salt {
    /// A fresh one.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub(crate) fn draw() -> io::Result<Self> {
        let mut drawn = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut drawn)?;
        Ok(Self::of(drawn))
    }

    /// That of the file at `path`, which is made if it is not there: 32 hexadecimal digits, for its owner alone.
    ///
    /// # Errors
    /// It cannot be read or made, or holds something else.
    pub(crate) fn kept_in(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(text.trim())
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a salt is 32 hexadecimal digits")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let salt = Self::draw()?;
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
                writeln!(file, "{:016x}{:016x}", salt.0[0], salt.0[1])?;
                Ok(salt)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn of(bytes: [u8; 16]) -> Self {
        let half = |at: usize| std::array::from_fn(|byte| bytes[at + byte]);
        Self([u64::from_le_bytes(half(0)), u64::from_le_bytes(half(8))])
    }

    fn parse(text: &str) -> Option<Self> {
        let half = |range| u64::from_str_radix(text.get(range)?, 16).ok();
        let is_salt = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_salt.then_some(Self([half(0..16)?, half(16..32)?]))
    }

    /// The hash of all of it.
    pub(crate) fn hash(self, bytes: &[u8]) -> u64 {
        let mut chain = Chain::new(self);
        chain.feed(bytes)
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

impl Chain {
    pub(crate) fn new(Salt([k0, k1]): Salt) -> Self {
        let state = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { state, bytes: 0 }
    }

    /// Goes on with `piece`; the hash of all so far. Only the last piece may have a length that eight does not divide.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> u64 {
        debug_assert!(self.bytes.is_multiple_of(8), "something follows an odd end");
        let (words, rest) = piece.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.bytes += piece.len() as u64;
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let mut end = *self;
        end.word(u64::from_le_bytes(last) | self.bytes << 56);
        end.state[2] ^= 0xff;
        (0..4).for_each(|_| end.round());
        end.state.iter().fold(0, |hash, part| hash ^ part)
    }

    fn word(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.round();
        self.state[0] ^= word;
    }

    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.state;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.state = [v0, v1, v2, v3];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_siphash() {
        let salt = Salt::of(std::array::from_fn(|at| at as u8));
        let text: [u8; 15] = std::array::from_fn(|at| at as u8);
        // The example of the paper's appendix.
        assert_eq!(salt.hash(&text), 0xa129_ca61_49be_45e5);
        let mut chain = Chain::new(salt);
        chain.feed(&text[..8]);
        assert_eq!(chain.feed(&text[8..]), salt.hash(&text), "pieces add up");
    }

    #[test]
    fn a_salt_that_is_kept_is_the_same_again_and_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("salt");
        let salt = Salt::kept_in(&path).expect("it is made");
        assert!(Salt::kept_in(&path).expect("it is there") == salt);
        assert!(Salt::draw().expect("randomness") != salt);
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "no salt").expect("a file");
        assert!(Salt::kept_in(&path).is_err());
    }
}
