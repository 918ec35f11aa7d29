//! Where the parts of a cluster listen, as a target's command is told of them.

use super::command::List;

/// What placeholders stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Where the router is to listen.
    pub port: u16,
    /// A second free port, for those that want one.
    pub metrics_port: u16,
    /// URLs of workers that do everything.
    pub regular: Vec<String>,
    /// URLs of workers that prefill, with the ports of their bootstrap servers.
    pub prefill: Vec<(String, Option<u16>)>,
    /// URLs of workers that decode.
    pub decode: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
}

impl Addresses {
    /// How many workers a list has.
    pub(super) fn count(&self, list: List) -> usize {
        match list {
            List::Regular => self.regular.len(),
            List::Prefill => self.prefill.len(),
            List::Decode => self.decode.len(),
        }
    }

    /// What a placeholder stands for; several arguments where it stands alone.
    pub(super) fn values(&self, name: &str) -> Vec<String> {
        let port = |port: &Option<u16>| port.map_or_else(|| "none".to_owned(), |port| port.to_string());
        match name {
            "port" => vec![self.port.to_string()],
            "metrics_port" => vec![self.metrics_port.to_string()],
            "seed" => vec![self.seed.to_string()],
            "workers" => self.regular.clone(),
            "worker_urls" => vec![self.regular.join(",")],
            "prefill" => self.prefill.iter().map(|(url, _)| url.clone()).collect(),
            "bootstrap" => self.prefill.iter().map(|(_, at)| port(at)).collect(),
            "decode" => self.decode.clone(),
            _ => Vec::new(),
        }
    }

    /// The same in one word.
    pub(super) fn text(&self, name: &str) -> String {
        self.values(name).join(" ")
    }

    /// The same where the words stand once for every worker of a list.
    pub(super) fn of_one(&self, list: List, place: usize, name: &str) -> String {
        match List::of(name) {
            Some(of) if of == list => self.values(name).swap_remove(place),
            _ => self.text(name),
        }
    }
}
