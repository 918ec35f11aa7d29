//! Prompts that are short against the pieces of which hashes are recorded: a few characters more or less in common decide.

use super::changes::{recorded, urls};
use super::*;

const WORDS: [&str; 12] =
    ["what", "is", "the", "capital", "of", "france", "how", "do", "write", "poem", "tell", "rust"];

/// The next number of a row.
fn next(state: &mut u64, end: u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % end) as usize
}

/// A request with a prompt of a few words, of Chinese characters, or of token ids.
fn short(client: usize, at: usize) -> (&'static str, String) {
    let mut state = (client * 1000 + at) as u64;
    next(&mut state, 2);
    let words = next(&mut state, 9) + 1;
    let text: Vec<&str> = (0..words).map(|_| WORDS[next(&mut state, 12)]).collect();
    let text = text.join(" ");
    match at % 4 {
        0 => ("/generate", format!(r#"{{"text":"{text}","sampling_params":{{"max_new_tokens":4}}}}"#)),
        1 => {
            let wide = "你好世界请问法国的首都是哪里".chars().take(3 + next(&mut state, 12));
            let own = (0..5 + next(&mut state, 30))
                .filter_map(|_| char::from_u32(0x4e00 + next(&mut state, 99) as u32));
            let text: String = wide.chain(own.collect::<Vec<_>>()).collect();
            ("/v1/completions", format!(r#"{{"model":"mock","prompt":"{text}","max_tokens":4}}"#))
        }
        2 => {
            let ids: Vec<String> = (0..words + 2).map(|_| next(&mut state, 3).to_string()).collect();
            let ids = ids.join(",");
            ("/generate", format!(r#"{{"input_ids":[{ids}],"sampling_params":{{"max_new_tokens":4}}}}"#))
        }
        _ => {
            let messages = format!(r#"[{{"role":"user","content":"{text}"}}]"#);
            let body = format!(r#"{{"model":"mock","messages":{messages},"max_tokens":4}}"#);
            ("/v1/chat/completions", body)
        }
    }
}

fn load(router: &Router) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                for at in 0..2 * REQUESTS {
                    let (path, body) = short(client, at);
                    let (status, text) = ask(&router.address, "POST", path, "", &body);
                    assert_eq!(status, 200, "{path} {body}: {text}");
                }
            });
        }
    });
}

#[test]
fn short_prompts_share_as_much_as_they_did() {
    let directory = tempfile::tempdir().unwrap();
    let split = Roles::Split { prefill: 2 };
    for (case, workers, dp_size, roles) in
        [("plain", 4, 1, Roles::default()), ("ranks", 2, 2, Roles::default()), ("pairs", 4, 1, split)]
    {
        let path = directory.path().join(format!("{case}.trace"));
        let host = host_of(workers, dp_size, roles);
        let mut fleet = urls(&host);
        let mut args = vec!["--policy", "cache_aware"];
        match case {
            "ranks" => args.push("--dp-aware"),
            "pairs" => {
                fleet = vec!["--pd-disaggregation".to_owned()];
                for (at, url) in host.urls().enumerate() {
                    fleet.extend([if at < 2 { "--prefill" } else { "--decode" }.to_owned(), url]);
                }
            }
            _ => {}
        }
        let router = recorded(&path, (workers * dp_size) as usize, &fleet, &args);
        load(&router);
        router.end();
        let found = identical(&path, case);
        assert_eq!(found["identical"], found["decisions"], "{case}: {found}");
        assert_eq!(found["other_reason"], 0, "{case}: {found}");
        assert_eq!(found["recorded"], found["replayed"], "{case}");
    }
}
