//! The network that KV takes from a prefill engine to decode engines.

/// What one engine's KV leaves through. Transfers that are in progress share its bandwidth equally.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From the first send of a transfer to its first byte on the way, in nanoseconds; once per transfer.
    pub setup_ns: u64,
    /// What all transfers together get through, in bytes per second.
    pub bytes_per_second: f64,
}

/// A [`Link`] with a name for scenario files and command lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkPreset {
    /// The name.
    pub name: &'static str,
    /// What it stands for.
    pub link: Link,
}

/// Every named link. The bandwidths are the usable ones that the llm-d documentation gives for KV transfer; the setup
/// times lie in the middle of what is usual for NVLink, RDMA and TCP.
pub const LINKS: &[LinkPreset] = &[
    row("nvlink", 300_000, 600.0),
    row("ib-400g", 1_000_000, 40.0),
    row("roce-200g", 1_000_000, 20.0),
    row("100gbe", 5_000_000, 10.0),
    row("25gbe", 5_000_000, 2.5),
];

const fn row(name: &'static str, setup_ns: u64, gb_s: f64) -> LinkPreset {
    LinkPreset { name, link: Link { setup_ns, bytes_per_second: gb_s * 1e9 } }
}

/// The link of that name.
#[must_use]
pub fn link(name: &str) -> Option<Link> {
    LINKS.iter().find(|preset| preset.name == name).map(|preset| preset.link)
}

impl Default for Link {
    /// The one that is called `ib-400g`.
    fn default() -> Self {
        Self { setup_ns: 1_000_000, bytes_per_second: 40e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_by_their_own_name_only() {
        for preset in LINKS {
            assert_eq!(link(preset.name), Some(preset.link));
        }
        assert_eq!(link("IB-400G"), None);
        assert_eq!(link("ib-400g"), Some(Link::default()));
    }
}
