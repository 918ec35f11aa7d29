//! What a thread runs its tasks on.

use std::ops::Deref;

use tokio::runtime::{Builder, Runtime};

/// A runtime for one thread. Its end does not wait for look-ups of names and readings of files that hang: nobody wants to
/// know any more what they find.
#[derive(Debug)]
pub(super) struct EventLoop(Option<Runtime>);

impl EventLoop {
    /// # Errors
    /// The operating system refuses timers or sockets.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(Some(Builder::new_current_thread().enable_all().build()?)))
    }
}

impl Deref for EventLoop {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
