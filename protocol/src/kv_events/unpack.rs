//! Reading msgpack, of any form of a number, with whatever newer engines may have added.

use std::sync::Arc;

use thiserror::Error;

use super::{Batch, BlockHash, KvEvent, Medium, Removed, Stored};
use crate::tokenizer::Token;

/// Why bytes are no batch of events.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// They end in the middle of a value.
    #[error("KV events: the bytes end at {0}, in the middle of a value")]
    Short(usize),
    /// Something else stands where a value is expected.
    #[error("KV events: byte {at}: expected {expected}")]
    Unexpected {
        /// Where.
        at: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// An event has no such field.
    #[error("KV events: an event before byte {at} lacks {field}")]
    Missing {
        /// Where the event ends.
        at: usize,
        /// The field.
        field: &'static str,
    },
    /// There is something after the batch.
    #[error("KV events: the batch ends at byte {0}, more follows")]
    Trailing(usize),
}

/// Reads a batch whose events have either shape. Unknown fields are passed over; an unknown type is an error, as a
/// mirror that skipped it would be wrong from then on.
///
/// # Errors
/// [`DecodeError`]; the offsets in it count from the first byte.
pub fn decode(bytes: &[u8]) -> Result<Batch, DecodeError> {
    let mut reader = Reader { bytes, at: 0 };
    let len = reader.array()?;
    if len < 2 {
        return reader.fail("an array of two or three: time, events, rank");
    }
    let ts = reader.number()?;
    let count = reader.array()?;
    // Each event takes a byte at least, so a length that lies allocates nothing.
    let mut events = Vec::with_capacity(count.min(bytes.len() - reader.at));
    for _ in 0..count {
        events.push(reader.event()?);
    }
    let rank = if len > 2 { reader.optional(Reader::token)? } else { None };
    (3..len).try_for_each(|_| reader.skip())?;
    if reader.at < bytes.len() {
        return Err(DecodeError::Trailing(reader.at));
    }
    Ok(Batch { ts, events, rank })
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The fields of an event, in whatever order they come.
#[derive(Default)]
struct Fields {
    kind: Option<Arc<str>>,
    hashes: Option<Vec<BlockHash>>,
    parent: Option<BlockHash>,
    tokens: Option<Vec<Token>>,
    block_size: Option<u32>,
    lora_id: Option<i64>,
    medium: Option<Medium>,
    cache_salt: Option<Arc<str>>,
    session_id: Option<Arc<str>>,
    lora_name: Option<Arc<str>>,
}

/// The fields of events that are arrays, after the type.
const STORED: &[&str] = &[
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "cache_salt",
    "session_id",
    "lora_name",
];
const REMOVED: &[&str] = &["block_hashes", "medium"];

// === impl Reader: events ===

impl Reader<'_> {
    fn event(&mut self) -> Result<KvEvent, DecodeError> {
        let mut fields = Fields::default();
        match self.peek()? {
            0x80..=0x8f | 0xde | 0xdf => {
                for _ in 0..self.map()? {
                    let name = self.text()?;
                    self.field(&name, &mut fields)?;
                }
            }
            _ => self.event_array(&mut fields)?,
        }
        self.finish(fields)
    }

    fn event_array(&mut self, fields: &mut Fields) -> Result<(), DecodeError> {
        let len = self.array()?;
        if len == 0 {
            return self.fail("an event");
        }
        let kind = self.text()?;
        let names = match &*kind {
            "BlockStored" => STORED,
            "BlockRemoved" => REMOVED,
            _ => &[],
        };
        fields.kind = Some(kind);
        for place in 1..len {
            match names.get(place - 1) {
                Some(name) => self.field(name, fields)?,
                None => self.skip()?,
            }
        }
        Ok(())
    }

    fn field(&mut self, name: &str, fields: &mut Fields) -> Result<(), DecodeError> {
        match name {
            "type" => fields.kind = self.optional(Self::text)?,
            "block_hashes" => fields.hashes = Some(self.list(|this| this.int().map(BlockHash))?),
            "parent_block_hash" => fields.parent = self.optional(Self::int)?.map(BlockHash),
            "token_ids" => fields.tokens = Some(self.list(Self::token)?),
            "block_size" => fields.block_size = Some(self.token()?),
            "lora_id" => fields.lora_id = self.optional(Self::int)?,
            "medium" => fields.medium = self.optional(Self::medium)?,
            "cache_salt" => fields.cache_salt = self.optional(Self::text)?,
            "session_id" => fields.session_id = self.optional(Self::text)?,
            "lora_name" => fields.lora_name = self.optional(Self::text)?,
            _ => self.skip()?,
        }
        Ok(())
    }

    fn finish(&self, fields: Fields) -> Result<KvEvent, DecodeError> {
        let missing = |field| DecodeError::Missing { at: self.at, field };
        match fields.kind.as_deref().ok_or(missing("type"))? {
            "BlockStored" => Ok(KvEvent::Stored(Stored {
                hashes: fields.hashes.ok_or(missing("block_hashes"))?,
                parent: fields.parent,
                tokens: fields.tokens.ok_or(missing("token_ids"))?,
                block_size: fields.block_size.ok_or(missing("block_size"))?,
                lora_id: fields.lora_id,
                medium: fields.medium,
                cache_salt: fields.cache_salt,
                session_id: fields.session_id,
                lora_name: fields.lora_name,
            })),
            "BlockRemoved" => Ok(KvEvent::Removed(Removed {
                hashes: fields.hashes.ok_or(missing("block_hashes"))?,
                medium: fields.medium,
            })),
            "AllBlocksCleared" => Ok(KvEvent::Cleared),
            _ => self.fail("an event of type BlockStored, BlockRemoved or AllBlocksCleared before here"),
        }
    }

    fn medium(&mut self) -> Result<Medium, DecodeError> {
        let text = self.text()?;
        Medium::from_label(&text).map_or_else(|| self.fail("a known medium before here"), Ok)
    }
}

// === impl Reader: msgpack ===

impl Reader<'_> {
    fn fail<T>(&self, expected: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError::Unexpected { at: self.at, expected })
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        self.bytes.get(self.at).copied().ok_or(DecodeError::Short(self.at))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.bytes[self.at..].first_chunk().ok_or(DecodeError::Short(self.bytes.len()))?;
        self.at += N;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn pass(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.bytes.len() - self.at {
            return Err(DecodeError::Short(self.bytes.len()));
        }
        self.at += len;
        Ok(())
    }

    fn len16(&mut self) -> Result<usize, DecodeError> {
        Ok(u16::from_be_bytes(self.take()?).into())
    }

    fn len32(&mut self) -> Result<usize, DecodeError> {
        Ok(u32::from_be_bytes(self.take()?) as usize)
    }

    /// The value, or none where there is a nil.
    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.peek()? == 0xc0 {
            self.at += 1;
            return Ok(None);
        }
        read(self).map(Some)
    }

    fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let len = self.array()?;
        let mut items = Vec::with_capacity(len.min(self.bytes.len() - self.at));
        for _ in 0..len {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn array(&mut self) -> Result<usize, DecodeError> {
        match self.peek()? {
            tag @ 0x90..=0x9f => {
                self.at += 1;
                Ok((tag & 0x0f).into())
            }
            0xdc => self.byte().and_then(|_| self.len16()),
            0xdd => self.byte().and_then(|_| self.len32()),
            _ => self.fail("an array"),
        }
    }

    fn map(&mut self) -> Result<usize, DecodeError> {
        match self.peek()? {
            tag @ 0x80..=0x8f => {
                self.at += 1;
                Ok((tag & 0x0f).into())
            }
            0xde => self.byte().and_then(|_| self.len16()),
            0xdf => self.byte().and_then(|_| self.len32()),
            _ => self.fail("a map"),
        }
    }

    fn text(&mut self) -> Result<Arc<str>, DecodeError> {
        let begin = self.at;
        let len = match self.byte()? {
            tag @ 0xa0..=0xbf => (tag & 0x1f).into(),
            0xd9 => self.byte()?.into(),
            0xda => self.len16()?,
            0xdb => self.len32()?,
            _ => return Err(DecodeError::Unexpected { at: begin, expected: "a text" }),
        };
        let from = self.at;
        self.pass(len)?;
        let text = std::str::from_utf8(&self.bytes[from..self.at]);
        text.map_or(Err(DecodeError::Unexpected { at: from, expected: "UTF-8" }), |text| Ok(text.into()))
    }

    /// Unsigned numbers above the range of `i64` keep their bits: engines have written hashes both ways.
    fn int(&mut self) -> Result<i64, DecodeError> {
        let begin = self.at;
        Ok(match self.byte()? {
            small @ 0..=0x7f => small.into(),
            small @ 0xe0..=0xff => (small as i8).into(),
            0xcc => self.byte()?.into(),
            0xcd => u16::from_be_bytes(self.take()?).into(),
            0xce => u32::from_be_bytes(self.take()?).into(),
            0xcf => u64::from_be_bytes(self.take()?) as i64,
            0xd0 => i8::from_be_bytes(self.take()?).into(),
            0xd1 => i16::from_be_bytes(self.take()?).into(),
            0xd2 => i32::from_be_bytes(self.take()?).into(),
            0xd3 => i64::from_be_bytes(self.take()?),
            _ => return Err(DecodeError::Unexpected { at: begin, expected: "a whole number" }),
        })
    }

    fn token(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let number = self.int()?;
        u32::try_from(number)
            .map_err(|_| DecodeError::Unexpected { at, expected: "a number from 0 to 2³²−1" })
    }

    fn number(&mut self) -> Result<f64, DecodeError> {
        match self.peek()? {
            0xcb => self.byte().and_then(|_| self.take().map(f64::from_be_bytes)),
            0xca => self.byte().and_then(|_| self.take().map(|bytes| f32::from_be_bytes(bytes).into())),
            _ => self.int().map(|number| number as f64),
        }
    }

    /// Passes over one value, whatever is in it, without recursion.
    fn skip(&mut self) -> Result<(), DecodeError> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            left += self.skip_head()?;
        }
        Ok(())
    }

    /// Passes over a value up to the values in it, and tells how many these are.
    fn skip_head(&mut self) -> Result<u64, DecodeError> {
        match self.peek()? {
            0x80..=0x8f | 0xde | 0xdf => return self.map().map(|len| 2 * len as u64),
            0x90..=0x9f | 0xdc | 0xdd => return self.array().map(|len| len as u64),
            0xa0..=0xbf | 0xd9..=0xdb => return self.text().map(|_| 0),
            _ => {}
        }
        let len = match self.byte()? {
            0xca => 4,
            0xcb => 8,
            0xcc | 0xd0 => 1,
            0xcd | 0xd1 => 2,
            0xce | 0xd2 => 4,
            0xcf | 0xd3 => 8,
            0xc4 => self.byte()?.into(),
            0xc5 => self.len16()?,
            0xc6 => self.len32()?,
            tag @ 0xd4..=0xd8 => 1 + (1 << (tag - 0xd4)),
            0xc7 => 1 + usize::from(self.byte()?),
            0xc8 => 1 + self.len16()?,
            0xc9 => 1 + self.len32()?,
            _ => 0,
        };
        self.pass(len)?;
        Ok(0)
    }
}
