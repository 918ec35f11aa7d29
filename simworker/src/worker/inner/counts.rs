//! How many tokens each reader has.

use super::super::front::News;
use super::Inner;

impl Inner {
    /// Tells the readers of all running batches how far their requests are, after a step of this moment.
    pub(super) fn tell_counts(&mut self, at_ns: u64) {
        let Self { engine, live, readers, front, .. } = self;
        let mut places = 0;
        for (id, tokens) in engine.running() {
            let Some(reader) = readers.at(places, id, || live.get(&id)) else { continue };
            places += 1;
            if !front.is_there() {
                reader.mailbox.tokens(at_ns, tokens);
            } else if tokens > 1 && front.is_told(tokens, reader.traffic) && reader.mailbox.is_news(tokens) {
                let through_ns = front.take(at_ns, reader.traffic);
                front.pass(through_ns, &reader.mailbox, News::Tokens(tokens));
            }
        }
        readers.truncate(places);
    }
}
