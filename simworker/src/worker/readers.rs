//! Who reads what the running batches produce, found without a search in almost every step.

use std::sync::Arc;

use simworker_core::RequestId;

use super::inner::Live;
use crate::latency::Traffic;
use crate::mailbox::Mailbox;

/// Who reads the tokens of one request.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    id: RequestId,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) traffic: Traffic,
}

/// The readers of the running batches, place by place. From one step to the next a batch hardly changes.
#[derive(Debug, Default)]
pub(super) struct Readers(Vec<Reader>);

impl Readers {
    /// The reader of the request at this place, where places are asked for from 0 on; `find` knows all requests.
    pub(super) fn at<'a>(
        &mut self,
        place: usize,
        id: RequestId,
        find: impl FnOnce() -> Option<&'a Live>,
    ) -> Option<&Reader> {
        if self.0.get(place).is_none_or(|reader| reader.id != id) {
            let live = find()?;
            let reader = Reader { id, mailbox: Arc::clone(&live.mailbox), traffic: live.traffic };
            match self.0.get_mut(place) {
                Some(stale) => *stale = reader,
                None => self.0.push(reader),
            }
        }
        self.0.get(place)
    }

    /// There are no more than so many now.
    pub(super) fn truncate(&mut self, places: usize) {
        self.0.truncate(places);
    }
}
