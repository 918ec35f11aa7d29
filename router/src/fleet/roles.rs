//! What a worker does for a request: as operators say it, as it says it itself, and what is wrong where these differ. And
//! what follows from that for the two legs of a request.

use router_core::Role;
use router_core::ids::WorkerId;

use super::{Books, Facts, Member, Terms};
use crate::config::BootstrapPort;

/// Where decode workers find a prefill worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bootstrap {
    /// The host of its URL; an address of IPv6 keeps its brackets, as a port is put behind it.
    pub(crate) host: String,
    /// `None`: not known, or not to be named.
    pub(crate) port: Option<u16>,
}

/// SGLang's name for sharing requests among ranks by their room.
const FOLLOW_ROOM: &str = "follow_bootstrap_room";

/// SGLang's name for the method that fits the role: for prefill workers that is [`FOLLOW_ROOM`].
const FITTING: &str = "auto";

impl Facts {
    /// What it does; nothing if it does not say it in a word that is known.
    pub(crate) fn role(&self) -> Option<Role> {
        match self.disaggregation_mode.as_deref()? {
            "null" => Some(Role::Regular),
            "prefill" => Some(Role::Prefill),
            "decode" => Some(Role::Decode),
            _ => None,
        }
    }
}

/// SGLang's name for it, the value of `--disaggregation-mode`.
fn mode(role: Role) -> &'static str {
    match role {
        Role::Regular => "null",
        Role::Prefill | Role::Decode => role.label(),
    }
}

impl Member {
    /// What it says that it does, where nobody else says it.
    pub(super) fn learned_role(&self) -> Option<Role> {
        self.look(|terms, facts| facts.role().filter(|_| terms.role.is_none()))
    }

    /// What it does, as far as that is known.
    pub(super) fn role(&self) -> Role {
        self.look(role)
    }

    /// Whether it does one half of requests only.
    pub(super) fn is_half(&self) -> bool {
        self.role() != Role::Regular
    }

    /// Whether it is, as far as it says, still the worker that it was if this is said of it. One that does not say its role
    /// is a regular one as soon as nobody else says it.
    pub(super) fn fits(&self, given: Option<Role>, port: BootstrapPort) -> bool {
        self.look(|terms, facts| {
            let role = role(terms, facts);
            let is_port = other_port(port, facts).is_none() || role != Role::Prefill;
            resolved(given, facts) == role && is_port
        })
    }

    /// Where decode workers find it, if it is a prefill worker.
    pub(crate) fn bootstrap(&self) -> Bootstrap {
        let authority = self.address.host.to_str().unwrap_or_default();
        let end = authority.rfind(':').filter(|colon| !authority[*colon..].contains(']'));
        let port = self.look(|terms, facts| match terms.bootstrap_port {
            BootstrapPort::Given(port) => Some(port),
            BootstrapPort::Unnamed => None,
            BootstrapPort::Asked => facts.bootstrap_port,
        });
        Bootstrap { host: authority[..end.unwrap_or(authority.len())].to_owned(), port }
    }

    /// Whether its ranks are chosen by the bootstrap room of a request: room modulo their number. So it is for a prefill
    /// worker that says nothing of it, as it is SGLang's default.
    pub(crate) fn follows_room(&self) -> bool {
        self.look(|terms, facts| match facts.load_balance_method.as_deref() {
            Some(FOLLOW_ROOM) => true,
            Some(FITTING) | None => role(terms, facts) == Role::Prefill,
            Some(_) => false,
        })
    }

    /// How many ranks share its requests, at least 1; that many if it does not say it.
    pub(crate) fn dp_size(&self) -> u32 {
        self.said_dp_size().unwrap_or(1)
    }

    /// How many ranks it says that share its requests.
    pub(crate) fn said_dp_size(&self) -> Option<u32> {
        let size = self.look(|_, facts| facts.dp_size);
        size.and_then(|size| u32::try_from(size).ok()).map(|size| size.max(1))
    }

    /// What was said of it that it says otherwise, and what can be done.
    pub(super) fn contradiction(&self) -> Option<String> {
        self.look(contradiction)
    }
}

/// What a worker does: what was said of it, or what it says. Until that is known it is a regular one.
fn role(terms: &Terms, facts: &Facts) -> Role {
    resolved(terms.role, facts)
}

/// The same of another word than that of its terms.
fn resolved(given: Option<Role>, facts: &Facts) -> Role {
    given.or_else(|| facts.role()).unwrap_or(Role::Regular)
}

/// A port that was given, and the one that the worker says instead.
fn other_port(given: BootstrapPort, facts: &Facts) -> Option<(u16, u16)> {
    let BootstrapPort::Given(given) = given else { return None };
    facts.bootstrap_port.filter(|said| *said != given).map(|said| (given, said))
}

fn contradiction(terms: &Terms, facts: &Facts) -> Option<String> {
    if let (Some(given), Some(said)) = (terms.role, facts.role().filter(|said| terms.role != Some(*said))) {
        return Some(format!(
            "it was given as a {} worker and says that it is a {said} worker; give it as a {said} worker, or start it with \
             --disaggregation-mode {}, and register it again",
            given.label(),
            mode(given),
            said = said.label()
        ));
    }
    let (given, said) =
        other_port(terms.bootstrap_port, facts).filter(|_| role(terms, facts) == Role::Prefill)?;
    Some(format!(
        "its bootstrap port was given as {given}, and it says that it is {said}; give {said}, or leave the port out, or \
         start it with --disaggregation-bootstrap-port {given}, and register it again"
    ))
}

impl Books {
    /// Sets the role of an engine; whether that changed it.
    pub(super) fn set_role(&mut self, now_ns: u64, member: &Member, role: Role) -> bool {
        let set = |changed, id: &WorkerId| self.router.set_role(now_ns, *id, role) | changed;
        member.ids().iter().fold(false, set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Address;

    fn member(url: &str, terms: Terms, facts: Facts) -> Member {
        let member = Member::new(WorkerId(0), Address::parse(url).expect(url), terms, 1);
        member.set_facts(facts);
        member
    }

    fn facts(mode: &str) -> Facts {
        Facts { disaggregation_mode: Some(mode.to_owned()), bootstrap_port: Some(8998), ..Facts::default() }
    }

    #[test]
    fn the_bootstrap_host_is_the_url_s_and_the_port_the_given_or_the_worker_s() {
        for (url, host) in [
            ("http://p:30000", "p"),
            ("http://p", "p"),
            ("http://10.0.0.1:1", "10.0.0.1"),
            ("http://[::1]:30000", "[::1]"),
            ("http://[fe80::1]", "[fe80::1]"),
        ] {
            assert_eq!(member(url, Terms::default(), Facts::default()).bootstrap().host, host, "{url}");
        }
        for (given, known, port) in [
            (BootstrapPort::Asked, facts("prefill"), Some(8998)),
            (BootstrapPort::Asked, Facts::default(), None),
            (BootstrapPort::Unnamed, facts("prefill"), None),
            (BootstrapPort::Given(9000), Facts::default(), Some(9000)),
        ] {
            let terms = Terms { bootstrap_port: given, ..Terms::default() };
            assert_eq!(member("http://p", terms, known).bootstrap().port, port, "{given:?}");
        }
    }

    #[test]
    fn a_role_is_the_given_one_or_the_worker_s_or_regular() {
        for (given, mode, role) in [
            (None, "prefill", Role::Prefill),
            (None, "decode", Role::Decode),
            (None, "null", Role::Regular),
            (None, "unheard-of", Role::Regular),
            (Some(Role::Decode), "unheard-of", Role::Decode),
        ] {
            let terms = Terms { role: given, ..Terms::default() };
            let member = member("http://w", terms, facts(mode));
            assert_eq!((member.look(super::role), member.contradiction()), (role, None), "{given:?} {mode}");
        }
        assert_eq!(member("http://w", Terms::default(), Facts::default()).look(super::role), Role::Regular);
    }

    #[test]
    fn what_is_contradicted_is_told_with_both_values_and_a_remedy() {
        let terms = |role, port| Terms { role, bootstrap_port: port, ..Terms::default() };
        let (prefill, port) = (Some(Role::Prefill), BootstrapPort::Given(9000));
        for (terms, mode, parts) in [
            (
                terms(prefill, BootstrapPort::Asked),
                "decode",
                ["as a prefill worker", "is a decode worker", "mode prefill"],
            ),
            (
                terms(Some(Role::Regular), BootstrapPort::Asked),
                "prefill",
                ["as a regular worker", "is a prefill worker", "mode null"],
            ),
            (terms(prefill, port), "prefill", ["as 9000", "is 8998", "leave the port out"]),
            (terms(None, port), "prefill", ["as 9000", "is 8998", "give 8998"]),
        ] {
            let said = member("http://w", terms, facts(mode)).contradiction().expect("a contradiction");
            for part in parts {
                assert!(said.contains(part), "no {part:?} in {said}");
            }
        }
        for (terms, mode) in [
            (terms(prefill, BootstrapPort::Unnamed), "prefill"),
            (terms(prefill, BootstrapPort::Given(8998)), "prefill"),
            (terms(None, port), "null"),
        ] {
            assert_eq!(member("http://w", terms, facts(mode)).contradiction(), None, "{mode}");
        }
    }

    #[test]
    fn a_worker_fits_what_makes_the_same_worker_of_it() {
        for (before, mode, after, fits) in [
            (None, "prefill", Some(Role::Prefill), true),
            (Some(Role::Prefill), "prefill", None, true),
            (Some(Role::Prefill), "prefill", Some(Role::Decode), false),
            (Some(Role::Prefill), "unheard-of", None, false),
            (None, "unheard-of", None, true),
            (None, "unheard-of", Some(Role::Regular), true),
        ] {
            let terms = Terms { role: before, ..Terms::default() };
            let member = member("http://w", terms, facts(mode));
            assert_eq!(member.fits(after, BootstrapPort::Asked), fits, "{before:?} {mode} {after:?}");
        }
    }

    #[test]
    fn ranks_follow_the_room_where_sglang_does() {
        for (mode, method, follows) in [
            ("prefill", Some("follow_bootstrap_room"), true),
            ("prefill", Some("auto"), true),
            ("prefill", None, true),
            ("prefill", Some("round_robin"), false),
            ("null", Some("auto"), false),
            ("decode", None, false),
        ] {
            let facts = Facts { load_balance_method: method.map(str::to_owned), ..facts(mode) };
            let member = member("http://w", Terms::default(), facts);
            assert_eq!(member.follows_room(), follows, "{mode} {method:?}");
        }
    }
}
