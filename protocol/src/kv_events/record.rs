//! How events that follow each other become one.

use super::KvEvent;

/// Adds an event to a list. Like SGLang's recorder it grows the last one instead where the two are alike: removals
/// from the same medium, and blocks that continue the sequence just stored.
pub fn append(events: &mut Vec<KvEvent>, event: KvEvent) {
    match (events.last_mut(), event) {
        (Some(KvEvent::Removed(last)), KvEvent::Removed(more)) if last.medium == more.medium => {
            last.hashes.extend(more.hashes);
        }
        (Some(KvEvent::Stored(last)), KvEvent::Stored(more))
            if last.medium == more.medium
                && last.lora_id == more.lora_id
                && last.block_size == more.block_size
                && last.cache_salt == more.cache_salt
                && last.session_id == more.session_id
                && last.lora_name == more.lora_name
                && more.parent.is_some()
                && more.parent == last.hashes.last().copied() =>
        {
            last.hashes.extend(more.hashes);
            last.tokens.extend(more.tokens);
        }
        (_, event) => events.push(event),
    }
}
