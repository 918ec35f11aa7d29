//! What the structures of the index cost on the heap, in bytes.
//!
//! Estimates from above, so that the memory bound is one the operating system would agree with. An allocation is
//! charged as glibc's malloc serves it; a B-tree as if every node of it were as empty as `std` lets it become.

/// One allocation of `bytes`: an 8-byte header, 16-byte granularity, 32 bytes at least.
pub(super) fn heap(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// A `BTreeMap` or `BTreeSet` of `entries` entries of `entry_bytes` each.
///
/// `std` uses nodes of 11 entries and merges nodes that fall below 5. Two leaves therefore mean 11 entries or more:
/// `l` leaves hold at least `5 l` entries and are parted by `l − 1` others.
pub(super) fn btree(entries: usize, entry_bytes: usize) -> usize {
    let leaf_bytes = 11 * entry_bytes + 24;
    let leaves = match entries {
        0 => 0,
        1..=10 => 1,
        n => n.div_ceil(6),
    };
    // An inner node has at least 6 children, the root of the tree at least 2.
    let inner = if leaves > 1 { 1 + leaves / 5 } else { 0 };
    leaves * heap(leaf_bytes) + inner * heap(leaf_bytes + 12 * size_of::<usize>())
}
