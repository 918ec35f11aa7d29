//! Prompts for the measurements of the prefix index.

use router_core::ids::WorkerId;

/// Buffers that the prompts are written into: as many as the bodies that a busy router has at hand.
const BUFFERS: u64 = 32;
/// Symbols of a tail that are new each time; what follows is the buffer's.
const FRESH: usize = 16;

/// A workload: prompts that begin with one of `heads` and end with a tail of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) heads: u64,
    pub(crate) head: usize,
    /// Tails have from half to one and a half of this length.
    pub(crate) tail: usize,
    pub(crate) workers: u64,
    pub(crate) max_tree_size: u64,
}

/// The prompts of a workload, one after the other.
#[derive(Debug)]
pub(crate) struct Prompts {
    load: Load,
    heads: Vec<Vec<u8>>,
    buffers: Vec<Vec<u8>>,
    serial: u64,
}

impl Prompts {
    pub(crate) fn new(load: Load) -> Self {
        let heads = (0..load.heads).map(|head| letters(head, load.head).collect()).collect();
        let longest = load.head + load.tail * 3 / 2;
        let buffers = (0..BUFFERS).map(|n| letters(1 << 30 | n, longest).collect()).collect();
        Self { load, heads, buffers, serial: 0 }
    }

    /// The next prompt, new but for its head, and the worker whose head it is.
    pub(crate) fn next(&mut self) -> (&[u8], WorkerId) {
        let Load { heads, head, tail, workers, .. } = self.load;
        self.serial += 1;
        let draw = mix(self.serial);
        let buffer = &mut self.buffers[(self.serial % BUFFERS) as usize];
        buffer[..head].copy_from_slice(&self.heads[(draw % heads) as usize]);
        let fresh = letters(self.serial | 1 << 40, FRESH);
        buffer[head..].iter_mut().zip(fresh).for_each(|(to, from)| *to = from);
        let bytes = head + tail / 2 + (draw >> 20) as usize % tail;
        let turn = if heads > 1 { draw % heads } else { self.serial };
        (&buffer[..bytes], WorkerId((turn % workers) as u32))
    }
}

/// Text that differs early between seeds, as sentences do.
fn letters(seed: u64, count: usize) -> impl Iterator<Item = u8> {
    let first = seed.wrapping_mul(1 << 20);
    (0..count as u64).map(move |at| b"etaoin shrdlu"[(mix(first.wrapping_add(at)) % 13) as usize])
}

fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
}
