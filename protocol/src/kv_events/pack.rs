//! Writing msgpack, with every number in its shortest form.

use super::{Batch, BlockHash, KvEvent, Medium, Removed, Shape, Stored};
use crate::tokenizer::Token;

/// A batch as bytes.
#[must_use]
pub fn encode(batch: &Batch, shape: Shape) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.array(if batch.rank.is_some() { 3 } else { 2 });
    out.float(batch.ts);
    out.array(batch.events.len());
    for event in &batch.events {
        match shape {
            Shape::Map => out.event_map(event),
            Shape::Array => out.event_array(event),
        }
    }
    if let Some(rank) = batch.rank {
        out.uint(rank.into());
    }
    out.0
}

struct Writer(Vec<u8>);

// === impl Writer: events ===

impl Writer {
    fn event_map(&mut self, event: &KvEvent) {
        match event {
            KvEvent::Stored(stored) => self.stored_map(stored),
            KvEvent::Removed(removed) => self.removed_map(removed),
            KvEvent::Cleared => {
                self.map(1);
                self.field("type", |out| out.text("AllBlocksCleared"));
            }
        }
    }

    /// Fields that SGLang gives no default are always there, the others only if they say something.
    fn stored_map(&mut self, stored: &Stored) {
        let Stored { hashes, parent, tokens, block_size, lora_id, .. } = stored;
        let medium = stored.medium.map(Medium::label);
        let (salt, session) = (stored.cache_salt.as_deref(), stored.session_id.as_deref());
        let optional = [
            ("medium", medium),
            ("cache_salt", salt),
            ("session_id", session),
            ("lora_name", stored.lora_name.as_deref()),
        ];
        self.map(6 + optional.iter().filter(|(_, value)| value.is_some()).count());
        self.field("type", |out| out.text("BlockStored"));
        self.field("block_hashes", |out| out.hashes(hashes));
        self.field("parent_block_hash", |out| out.int_or_nil(parent.map(|hash| hash.0)));
        self.field("token_ids", |out| out.tokens(tokens));
        self.field("block_size", |out| out.uint((*block_size).into()));
        self.field("lora_id", |out| out.int_or_nil(*lora_id));
        self.optional(&optional);
    }

    fn removed_map(&mut self, removed: &Removed) {
        let medium = removed.medium.map(Medium::label);
        self.map(2 + usize::from(medium.is_some()));
        self.field("type", |out| out.text("BlockRemoved"));
        self.field("block_hashes", |out| out.hashes(&removed.hashes));
        self.optional(&[("medium", medium)]);
    }

    fn optional(&mut self, fields: &[(&str, Option<&str>)]) {
        for (name, value) in fields {
            if let Some(value) = value {
                self.field(name, |out| out.text(value));
            }
        }
    }

    /// What later versions have added is not in this shape.
    fn event_array(&mut self, event: &KvEvent) {
        match event {
            KvEvent::Stored(Stored { hashes, parent, tokens, block_size, lora_id, medium, .. }) => {
                self.array(6 + usize::from(medium.is_some()));
                self.text("BlockStored");
                self.hashes(hashes);
                self.int_or_nil(parent.map(|hash| hash.0));
                self.tokens(tokens);
                self.uint((*block_size).into());
                self.int_or_nil(*lora_id);
                medium.iter().for_each(|medium| self.text(medium.label()));
            }
            KvEvent::Removed(Removed { hashes, medium }) => {
                self.array(2 + usize::from(medium.is_some()));
                self.text("BlockRemoved");
                self.hashes(hashes);
                medium.iter().for_each(|medium| self.text(medium.label()));
            }
            KvEvent::Cleared => {
                self.array(1);
                self.text("AllBlocksCleared");
            }
        }
    }

    fn hashes(&mut self, hashes: &[BlockHash]) {
        self.array(hashes.len());
        hashes.iter().for_each(|hash| self.int(hash.0));
    }

    fn tokens(&mut self, tokens: &[Token]) {
        self.array(tokens.len());
        tokens.iter().for_each(|token| self.uint((*token).into()));
    }

    fn field(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        self.text(name);
        value(self);
    }
}

// === impl Writer: msgpack ===

impl Writer {
    fn array(&mut self, len: usize) {
        match len {
            0..16 => self.0.push(0x90 | len as u8),
            16..0x1_0000 => self.tagged(0xdc, &(len as u16).to_be_bytes()),
            _ => self.tagged(0xdd, &(len as u32).to_be_bytes()),
        }
    }

    /// Events have fewer than 16 fields.
    fn map(&mut self, len: usize) {
        self.0.push(0x80 | len as u8);
    }

    fn text(&mut self, text: &str) {
        match text.len() {
            len @ 0..32 => self.0.push(0xa0 | len as u8),
            len @ 32..0x100 => self.tagged(0xd9, &[len as u8]),
            len @ 0x100..0x1_0000 => self.tagged(0xda, &(len as u16).to_be_bytes()),
            len => self.tagged(0xdb, &(len as u32).to_be_bytes()),
        }
        self.0.extend_from_slice(text.as_bytes());
    }

    fn float(&mut self, number: f64) {
        self.tagged(0xcb, &number.to_be_bytes());
    }

    fn uint(&mut self, number: u64) {
        match number {
            0..0x80 => self.0.push(number as u8),
            0x80..0x100 => self.tagged(0xcc, &[number as u8]),
            0x100..0x1_0000 => self.tagged(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..0x1_0000_0000 => self.tagged(0xce, &(number as u32).to_be_bytes()),
            _ => self.tagged(0xcf, &number.to_be_bytes()),
        }
    }

    fn int(&mut self, number: i64) {
        match number {
            0.. => self.uint(number as u64),
            -0x20..0 => self.0.push(number as u8),
            -0x80..-0x20 => self.tagged(0xd0, &(number as i8).to_be_bytes()),
            -0x8000..-0x80 => self.tagged(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..-0x8000 => self.tagged(0xd2, &(number as i32).to_be_bytes()),
            _ => self.tagged(0xd3, &number.to_be_bytes()),
        }
    }

    fn int_or_nil(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.int(number),
            None => self.0.push(0xc0),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }
}
