//! The shallow reader of request bodies.

mod agreement;
mod bodies;
mod chats;
mod forms;
mod hostile;
mod oracle;

use protocol::view::{Dialect, RequestView};

/// Every form of body.
const DIALECTS: [Dialect; 9] = [
    Dialect::Chat,
    Dialect::Completions,
    Dialect::Generate,
    Dialect::Responses,
    Dialect::Embeddings,
    Dialect::Classify,
    Dialect::Rerank,
    Dialect::Score,
    Dialect::Opaque,
];

fn read(dialect: Dialect, body: &str) -> RequestView<'_> {
    RequestView::read(dialect, body.as_bytes())
}
