//! Options of SGLang's gateway that this router does not have and that would change what it does: refused by name, with
//! what can be done instead.

const MINI_LB: &str = "leave it out: --pd-disaggregation with --prefill and --decode does what the small balancer does, and \
                       --policy random chooses as it does";
const DISCOVERY: &str =
    "Kubernetes is not watched here; name the workers with --worker-urls or in the file of --config";
const TOKENS: &str =
    "operators show keys here, not tokens of an identity provider; see --control-plane-api-keys";
const TRACES: &str = "no traces are sent; see --access-log and the metrics";
const PEERS: &str = "routers do not tell each other anything here; start each by itself";
const MODULES: &str = "no modules are loaded here";
const ROOM: &str = "pairs are not held back by what an engine has in its queues; --decode-dispatch-limit bounds the decode \
                    streams of each prefill worker, and --max-concurrent-requests with --queue-size and \
                    --queue-timeout-secs the requests under way";
const ENCODERS: &str = "engines that encode images for others are not spoken to here; give --prefill engines that encode by \
                        themselves";
const RANKS: &str = "--dp-aware with --policy power_of_two chooses ranks by the tokens that they report";

/// Names without the leading dashes, and what is said of them.
const ABSENT: &[(&[&str], &str)] = &[
    (&["mini-lb"], MINI_LB),
    (
        &[
            "service-discovery",
            "selector",
            "service-discovery-port",
            "service-discovery-namespace",
            "prefill-selector",
            "decode-selector",
        ],
        DISCOVERY,
    ),
    (&["jwt-issuer", "jwt-audience", "jwt-jwks-uri", "jwt-role-mapping", "jwt-role-claim"], TOKENS),
    (&["enable-trace", "otlp-traces-endpoint"], TRACES),
    (&["enable-mesh", "mesh-server-name", "mesh-host", "mesh-port", "mesh-peer-urls"], PEERS),
    (&["enable-wasm"], MODULES),
    (
        &[
            "prefill-max-inflight-requests-per-worker",
            "prefill-queue-size",
            "prefill-queue-timeout-secs",
            "pd-admission-wait-secs",
        ],
        ROOM,
    ),
    (&["epd-disaggregation", "encode", "encode-policy", "encode-selector"], ENCODERS),
    (&["dp-minimum-tokens-scheduler"], RANKS),
];

/// What is said of those of these words that are options of the gateway that the router has not; `None`: none is.
pub(super) fn of_gateway<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut found: Vec<(&str, Vec<String>)> = Vec::new();
    for word in words {
        let Some((flag, remedy)) = find(word) else { continue };
        match found.iter_mut().find(|(known, _)| *known == remedy) {
            Some((_, flags)) if flags.contains(&flag) => {}
            Some((_, flags)) => flags.push(flag),
            None => found.push((remedy, vec![flag])),
        }
    }
    let told = found.iter().map(|(remedy, flags)| {
        let these = if flags.len() == 1 { "this option" } else { "these options" };
        let flags = flags.join(", ");
        format!("{flags}: the SGLang gateway has {these} and this router has not: {remedy}")
    });
    Some(told.collect::<Vec<_>>().join("; ")).filter(|told| !told.is_empty())
}

/// The option that a word gives, and its remedy.
fn find(word: &str) -> Option<(String, &'static str)> {
    let name = word.strip_prefix("--")?.split('=').next()?;
    let (_, remedy) = ABSENT.iter().find(|(names, _)| names.contains(&name))?;
    Some((format!("--{name}"), remedy))
}

/// Every such option with its remedy.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ABSENT.iter().flat_map(|(names, remedy)| names.iter().map(|name| (*name, *remedy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_gateway_is_told_from_a_slip() {
        for argument in ["--mini-lb", "--selector=app=w"] {
            let said = of_gateway([argument]).expect(argument);
            assert!(said.starts_with(argument.split('=').next().expect("a name")), "{said}");
        }
        for argument in ["--mini-lbs", "mini-lb", "--"] {
            assert_eq!(of_gateway([argument]), None, "{argument}");
        }
    }

    #[test]
    fn all_are_told_at_once_and_each_remedy_once() {
        let words =
            ["--selector", "a=b", "--enable-wasm", "--selector", "c=d", "--decode-selector=e=f", "--seed"];
        let said = of_gateway(words).expect("some");
        let begin = "--selector, --decode-selector: the SGLang gateway has these options and";
        assert!(said.starts_with(begin), "{said}");
        assert!(
            said.contains(&format!("{DISCOVERY}; --enable-wasm: the SGLang gateway has this option")),
            "{said}"
        );
        assert!(said.ends_with(MODULES), "{said}");
    }
}
