//! `workload.kind = "mix"`: several workloads at once.

use super::error::ScenarioError;
use super::resolve::Resolver;
use super::section::{Kind, Section};
use super::workload::{self, KINDS, MOST_REQUESTS, Workload};

/// Workloads that are sent at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// How many requests and sessions begin by themselves, over all parts.
    pub requests: u32,
    /// The parts.
    pub parts: Vec<Part>,
}

/// One workload of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its share of all, against those of the others.
    pub weight: f64,
    /// What it sends.
    pub workload: Workload,
}

impl Mix {
    /// How many of the requests and sessions that begin by themselves are each part's: in proportion to its weight, rounded so
    /// that they add up; the parts that lose most by rounding have one more.
    #[must_use]
    pub fn shares(&self) -> Vec<u32> {
        let all: f64 = self.parts.iter().map(|part| part.weight).sum();
        let exact: Vec<f64> =
            self.parts.iter().map(|part| f64::from(self.requests) * part.weight / all).collect();
        let mut shares: Vec<u32> = exact.iter().map(|exact| exact.floor() as u32).collect();
        let mut by_loss: Vec<usize> = (0..exact.len()).collect();
        by_loss.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()));
        let missing = self.requests.saturating_sub(shares.iter().sum());
        by_loss.into_iter().take(missing as usize).for_each(|part| shares[part] += 1);
        shares
    }

    /// How many requests a run has; where that is drawn, on average.
    #[must_use]
    pub fn requests_of_parts(&self) -> u64 {
        let of = |(part, share): (&Part, u32)| {
            part.workload.requests() as f64 * f64::from(share) / part.workload.starts() as f64
        };
        self.parts.iter().zip(self.shares()).map(of).sum::<f64>().round() as u64
    }
}

pub(super) fn read(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Mix, ScenarioError> {
    let kinds: Vec<Kind> =
        KINDS.iter().copied().filter(|(kind, _)| !["trace", "mix"].contains(kind)).collect();
    let field = section.need("parts")?;
    let items = field.list()?;
    let mut parts = Vec::new();
    for item in &items {
        let (table, kind) = Section::open_kind_with(item.node, item.path(), &kinds, &["weight"])?;
        let weight = table.get("weight").map_or(Ok(1.0), |field| field.number(1e-6..=1e6))?;
        parts.push(Part { weight, workload: workload::part(kind, &table, resolver)? });
    }
    if parts.is_empty() {
        return Err(field.error("is empty", "give at least one part"));
    }
    let mix = Mix { requests: section.need("requests")?.whole(1..=MOST_REQUESTS as u32)?, parts };
    for ((part, share), item) in mix.parts.iter().zip(mix.shares()).zip(&items) {
        let has = part.workload.starts();
        if u64::from(share) > has {
            let problem =
                format!("has {has} requests or sessions, and its share of {} is {share}", mix.requests);
            return Err(item.error(problem, "give this part more, or lower workload.requests"));
        }
    }
    Ok(mix)
}
