//! Bodies as real clients send them: one of each shape, with what a parser would spoil.

/// What it is, where it goes, and its bytes.
pub(crate) type Body = (&'static str, &'static str, &'static str);

const CHAT: &str = "/v1/chat/completions";
const GENERATE: &str = "/generate";
const COMPLETIONS: &str = "/v1/completions";

pub(crate) const BODIES: [Body; 19] = [
    ("minimal chat", CHAT, r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#),
    (
        "tools and a tool choice",
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"Rain?"}],
  "tools":[{"type":"function","function":{"name":"rain","strict":true,"parameters":{"type":"object","properties":
  {"at":{"type":["string","null"],"default":null}},"required":["at"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"nothing"}}],
  "tool_choice":{"type":"function","function":{"name":"rain"}},"parallel_tool_calls":false,"temperature":0}"#,
    ),
    (
        "image parts",
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},
  {"type":"image_url","image_url":{"url":"https://i.example.com/a.png?s=a%2Fb%3D","detail":"low"}},
  {"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}}]}],"max_tokens":6}"#,
    ),
    (
        "a history with other roles and tool results",
        CHAT,
        r#"{"messages":[{"role":"developer","content":"Be brief."},{"role":"critic","content":3},
  {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":
  "{\"note\": \"caf\\u00e9\"}"}},{"id":"c2","type":"function","function":{"name":"f","arguments":""}}]},
  {"role":"tool","tool_call_id":"c1","content":"{\"build\": \"1.2\"}"},
  {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"error"}]}],"stream":true}"#,
    ),
    (
        "null arguments, null and empty lists",
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"ls"},{"role":"assistant","tool_calls":[{"id":"t",
  "type":"function","index":0,"function":{"name":"ls","arguments":null}}]},{"role":"assistant","content":
  [{"type":"text","text":"Empty."}],"tool_calls":null},{"role":"user","content":""}],"tools":[]}"#,
    ),
    (
        "reasoning in the history",
        CHAT,
        r#"{"model":"m","messages":[{"role":"assistant","reasoning_content":"7*13\n","content":"91"},
  {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"91"}]}],
  "reasoning_effort":0.35,"chat_template_kwargs":{"thinking":true,"more":[1,{"deep":null}]},"separate_reasoning":true,
  "stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#,
    ),
    (
        "a schema for the answer",
        CHAT,
        r##"{"model":"m","messages":[{"role":"user","content":"Total: 19,90"}],"response_format":{"type":
  "json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"id":{"type":"string",
  "pattern":"^N-\\d{4}$"},"sum":{"multipleOf":0.01},"of":{"$ref":"#/$defs/of"}},"required":["sum","id"],
  "$defs":{"of":{"maximum":9007199254740993}}}}},"temperature":0.0}"##,
    ),
    (
        "every sampling option",
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"Names"}],"n":3,"logprobs":true,"logit_bias":{"50256":
  -100,"1917":2.5},"stop":["\n\n","\u00a7","</s>"],"seed":9223372036854775807,"temperature":0.70,"presence_penalty":
  1e-1,"frequency_penalty":-0.0,"user":"t/\u00fc","metadata":{"empty":""},"store":false}"#,
    ),
    (
        "the engine's own options, and one of tomorrow",
        CHAT,
        r#"{"model":"base:adapter","messages":[{"role":"user","content":"id"}],"rid":"job-1","lora_path":"adapter",
  "session_params":{"id":"s","offset":-1,"drop_previous_output":null},"stop_regex":["END\\s*$"],"top_k":-1,
  "return_routed_experts":true,"cache_salt":"t7","extra_key":"k","priority":-5,"custom_params":{"a":{"b":[1,2.50]}},
  "x_future":{"keep":["me",0,false,null]}}"#,
    ),
    (
        "chat by token ids, with a grammar",
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"unused"}],"input_ids":[128000,0,151645],
  "ebnf":"root ::= \"yes\" | \"no\"\nws ::= [ \\t]*\n","stream":false}"#,
    ),
    (
        "generate from a text",
        GENERATE,
        r#"{"text":"Lima is","sampling_params":{"stop":["\n"],"json_schema":"{\"type\": \"string\"}","sampling_seed":
  18446744073709551615},"stream":true,"rid":"r1","return_logprob":true,"top_logprobs_num":2}"#,
    ),
    (
        "generate from texts",
        GENERATE,
        r#"{"text":["1+1=","","\u6771\u4eac"],"sampling_params":[{"max_new_tokens":4},{},{"temperature":0.8}],
  "rid":["r0","r1","r2"],"return_logprob":[true,false,true],"lora_path":["a",null,"a"]}"#,
    ),
    (
        "generate from token ids",
        GENERATE,
        r#"{"input_ids":[128000,3923,30],"sampling_params":{"temperature":0.0},"logprob_start_len":-1}"#,
    ),
    (
        "generate from lists of token ids",
        GENERATE,
        r#"{"input_ids":[[128000,3923],[128000],[7]],"sampling_params":{"max_new_tokens":1}}"#,
    ),
    (
        "a completion with echo and suffix",
        COMPLETIONS,
        r#"{"model":"m","prompt":"def f(a):\n\treturn ","suffix":"\r\n","echo":true,"logprobs":0,"best_of":1}"#,
    ),
    (
        "completions of several texts",
        COMPLETIONS,
        r#"{"prompt":["Once","Il était","むかし"],"n":2,"stream":true,"stream_options":{"include_usage":true}}"#,
    ),
    (
        "a completion of token ids",
        COMPLETIONS,
        r#"{"prompt":[151644,872],"max_tokens":5,"seed":0,"user":""}"#,
    ),
    (
        "an embedding",
        "/v1/embeddings",
        r#"{"model":"m","input":"A sentence. ","encoding_format":"base64","dimensions":256,"user":"u"}"#,
    ),
    (
        "a reranking",
        "/v1/rerank",
        r#"{"query":"How?","documents":["So.","","Réessayez.",[{"type":"text","text":"See"},{"type":"image_url",
  "image_url":{"url":"https://i.example.com/r.png"}}]],"top_n":2,"return_documents":false}"#,
    ),
];

/// Where the reference bodies go, by the number that their files begin with.
pub(crate) fn path_of_reference(number: u32) -> &'static str {
    match number {
        1..=10 => CHAT,
        11..=15 => GENERATE,
        16..=19 => COMPLETIONS,
        20..=22 => "/v1/embeddings",
        _ => "/v1/rerank",
    }
}
