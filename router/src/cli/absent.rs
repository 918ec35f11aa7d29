//! Options of SGLang's gateway that this router does not have. They are refused, as leaving one out may matter to who
//! gave it; but by name, and without a guess at what else may have been meant.

/// Without the leading dashes.
const ABSENT: &[&str] = &[
    "worker-startup-timeout-secs",
    "worker-startup-check-interval",
    "eviction-interval-secs",
    "eviction-interval",
    "log-dir",
    "cors-allowed-origins",
    "prefill-policy",
    "decode-policy",
    "dp-aware",
    "enable-igw",
    "mini-lb",
    "pd-disaggregation",
    "prefill",
    "decode",
    "service-discovery",
    "selector",
    "service-discovery-port",
    "service-discovery-namespace",
    "prefill-selector",
    "decode-selector",
    "model-path",
    "tokenizer-path",
    "chat-template",
    "tokenizer-cache-enable-l0",
    "tokenizer-cache-l0-max-entries",
    "tokenizer-cache-enable-l1",
    "tokenizer-cache-l1-max-memory",
    "reasoning-parser",
    "tool-call-parser",
    "mcp-config-path",
    "backend",
    "history-backend",
    "client-cert-path",
    "client-key-path",
    "ca-cert-paths",
    "tls-cert-path",
    "tls-key-path",
    "enable-trace",
    "otlp-traces-endpoint",
    "control-plane-api-keys",
    "control-plane-audit-enabled",
    "jwt-issuer",
    "jwt-audience",
    "jwt-jwks-uri",
    "jwt-role-mapping",
];

/// What is said of an option that is not known, if the gateway has it.
pub(super) fn of_gateway(argument: &str) -> Option<String> {
    let name = argument.strip_prefix("--")?;
    let name = name.split('=').next().unwrap_or(name);
    ABSENT.contains(&name).then(|| {
        format!("--{name}: the SGLang gateway has this option and this router has not; leave it out, or see --help for what there is")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_the_gateway_is_told_from_a_slip() {
        for argument in ["--log-dir", "--prefill=http://w:1"] {
            let said = of_gateway(argument).expect(argument);
            assert!(said.starts_with(argument.split('=').next().expect("a name")), "{said}");
        }
        for argument in ["--log-dirs", "log-dir", "--"] {
            assert_eq!(of_gateway(argument), None, "{argument}");
        }
    }
}
