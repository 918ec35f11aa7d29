//! Options of SGLang's gateway that this router does not have and that would change what it does: refused by name, with
//! what can be done instead.

const PREFILL_DECODE: &str = "prefill and decode workers are not told apart here; give the addresses of workers that do \
                              both to --worker-urls";
const RANKS: &str =
    "a worker's ranks are not addressed one by one here; the worker shares requests among them";
const DISCOVERY: &str =
    "Kubernetes is not watched here; name the workers with --worker-urls or in the file of --config";
const TOKENS: &str =
    "operators show keys here, not tokens of an identity provider; see --control-plane-api-keys";
const TRACES: &str = "no traces are sent; see --access-log and the metrics";
const PEERS: &str = "routers do not tell each other anything here; start each by itself";
const MODULES: &str = "no modules are loaded here";

/// Names without the leading dashes, and what is said of them.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &["pd-disaggregation", "prefill", "decode", "prefill-policy", "decode-policy", "mini-lb"],
        PREFILL_DECODE,
    ),
    (&["dp-aware"], RANKS),
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
];

/// What is said of an option that is not known, if the gateway has it.
pub(super) fn of_gateway(argument: &str) -> Option<String> {
    let name = argument.strip_prefix("--")?;
    let name = name.split('=').next().unwrap_or(name);
    let (_, remedy) = ABSENT.iter().find(|(names, _)| names.contains(&name))?;
    Some(format!("--{name}: the SGLang gateway has this option and this router has not: {remedy}"))
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
        for argument in ["--dp-aware", "--prefill=http://w:1"] {
            let said = of_gateway(argument).expect(argument);
            assert!(said.starts_with(argument.split('=').next().expect("a name")), "{said}");
        }
        for argument in ["--dp-awares", "dp-aware", "--"] {
            assert_eq!(of_gateway(argument), None, "{argument}");
        }
    }
}
