//! A file per format.

mod aiperf;
mod azure;
mod bailian;
mod burstgpt;
mod mooncake;
mod router;
mod sharegpt;
mod table;
mod weka;

pub(super) use bailian::BLOCK_TOKENS as BAILIAN_BLOCK_TOKENS;
pub(super) use mooncake::BLOCK_TOKENS as MOONCAKE_BLOCK_TOKENS;

use std::collections::VecDeque;

use super::Format;
use super::rows::Reader;
use super::source::Source;

/// What reads `source` as `format`; `later` are the other files of a recording.
pub(super) fn reader(format: Format, source: Source, later: VecDeque<Source>) -> Box<dyn Reader> {
    match format {
        Format::Mooncake => Box::new(mooncake::Mooncake::new(source)),
        Format::Azure => Box::new(azure::Azure::new(source)),
        Format::BurstGpt => Box::new(burstgpt::BurstGpt::new(source)),
        Format::Bailian => Box::new(bailian::Bailian::new(source)),
        Format::ShareGpt => Box::new(sharegpt::ShareGpt::new(source)),
        Format::Aiperf => Box::new(aiperf::Aiperf::new(source)),
        Format::Weka => Box::new(weka::Weka::new(source)),
        Format::Router => Box::new(router::Router::new(source, later)),
    }
}
