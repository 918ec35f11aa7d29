//! The places in the fleet of the workers that the router names. It names them by their URLs too: the numbers of ranks depend on
//! which worker said first how many it has.

/// Workers by place.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<String>);

impl Places {
    /// The URLs of the workers, in the order of their places.
    pub(super) fn new(urls: Vec<String>) -> Self {
        Self(urls)
    }

    /// The place of the worker at `url`, if there is one.
    pub(super) fn of(&self, url: &str) -> Option<u32> {
        self.0.iter().position(|known| known == url).map(|place| place as u32)
    }
}
