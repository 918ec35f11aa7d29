//! Workers that were not asked yet whether they are there. While there are some, a request that finds nobody waits for
//! them: right after the start the first probes take a moment, and that moment should cost nobody an error.

use std::time::Duration;

use tokio::sync::watch;

/// How many workers have not been asked yet; whoever waits is woken at 0.
#[derive(Debug)]
pub(crate) struct Newcomers(watch::Sender<usize>);

/// One whose first answer is not known. Dropped when it is.
#[derive(Debug)]
pub(crate) struct Newcomer(watch::Sender<usize>);

impl Newcomers {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// One more.
    pub(super) fn announce(&self) -> Newcomer {
        self.0.send_modify(|count| *count += 1);
        Newcomer(self.0.clone())
    }

    /// Waits until all of those that there are are known, for as long as `limit`.
    pub(crate) async fn all_known(&self, limit: Duration) {
        let mut news = self.0.subscribe();
        // The channel is ours, so it stays open.
        let _ = tokio::time::timeout(limit, news.wait_for(|count| *count == 0)).await;
    }

    /// Waits until one of those that there are is known; false, at once, if there is none.
    pub(crate) async fn next(&self) -> bool {
        let mut news = self.0.subscribe();
        let waiting = *news.borrow_and_update();
        // Many may come and go between two looks; whoever looks again sees.
        waiting > 0 && news.changed().await.is_ok()
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
