//! Plans of every kind of workload: who waits for whom, and what prompts hold.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The plan of a scenario with this workload and arrival.
fn plan_of(workload: &str, arrival: &str, seed: u64) -> Plan {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    let text = format!(
        "schema = 1\nname = \"plan\"\n[workload]\n{workload}\n[arrival]\n{arrival}\n[fleet]\nworkers = 1\n[router]\n\
         policies = [\"round_robin\"]"
    );
    std::fs::write(&path, text).unwrap();
    let scenario = crate::scenario::load(&path, &[], None, None, None).unwrap_or_else(|e| panic!("{e}"));
    let plan = plan(&scenario, seed);
    let of_mean = scenario.workload.requests() as f64 / plan.requests.len() as f64;
    assert!((of_mean - 1.0).abs() < 0.2, "the scenario knows how many requests come");
    plan
}

const CHAT: &str = "kind = \"chat\"\nsessions = 50\nturns = { uniform = [1, 5] }\nquestion_tokens = 30\n\
                    output_tokens = { uniform = [10, 20] }\nthink = { exponential = \"2s\" }\nsystem_tokens = 100\n\
                    system_prompts = 3";
const AGENTIC: &str = "kind = \"agentic\"\nsessions = 10\nchildren = { uniform = [2, 4] }\nquestion_tokens = 50\n\
                       output_tokens = 20\nchild_tokens = 7\nchild_output_tokens = 9\njoin_tokens = 5\nthink = \"1s\"\n\
                       system_tokens = 100";
const POISSON: &str = "kind = \"poisson\"\nrate = 5.0";

/// What must hold of every plan.
fn check(plan: &Plan) {
    for (seq, request) in plan.requests.iter().enumerate() {
        assert_eq!(request.seq, seq as u64);
        let after: BTreeSet<u32> =
            request.after.iter().flat_map(|after| after.seqs.iter().copied()).collect();
        assert!(after.iter().all(|before| (*before as usize) < seq), "predecessors come first");
        for before in request.replies() {
            let earlier = &plan.requests[before as usize];
            assert!((before as usize) < seq && earlier.session == request.session);
        }
        if plan.pacing == Pacing::Open {
            let earliest = after.iter().map(|before| plan.requests[*before as usize].at_ns).max();
            let think_ns = request.after.as_ref().map_or(0, |after| after.think_ns);
            assert!(earliest.is_none_or(|earliest| request.at_ns == earliest + think_ns));
        }
    }
    if plan.pacing == Pacing::Open {
        assert!(plan.requests.is_sorted_by_key(|request| request.at_ns));
    }
}

#[test]
fn a_turn_holds_all_turns_before_it_and_their_replies() {
    let plan = plan_of(CHAT, POISSON, 1);
    check(&plan);
    let mut sessions: BTreeMap<u64, Vec<&PlannedRequest>> = BTreeMap::new();
    plan.requests.iter().for_each(|r| sessions.entry(r.session.unwrap()).or_default().push(r));
    assert_eq!(sessions.len(), 50);
    for (session, turns) in &sessions {
        assert!((1..=5).contains(&turns.len()));
        assert!(
            (0..).zip(turns).all(|(place, request)| request.turn == Some(place)),
            "turns are counted from 0"
        );
        assert_eq!(turns[0].group, Some((session % 3) as u32));
        assert_eq!(turns[0].prompt_tokens(), 130);
        assert!(turns[0].after.is_none());
        for pair in turns.windows(2) {
            let [before, turn] = pair else { unreachable!() };
            assert_eq!(&*turn.after.as_ref().unwrap().seqs, [before.seq as u32]);
            let (known, new) = turn.prompt.split_at(before.prompt.len());
            assert_eq!(known, &*before.prompt);
            let reply = Segment::Reply { seq: before.seq as u32, tokens: before.output_tokens };
            assert!(new.len() == 2 && new[0] == reply && new[1].tokens() == 30, "{new:?}");
            assert_eq!(turn.prompt_tokens(), before.prompt_tokens() + before.output_tokens + 30);
        }
    }
    let lengths: BTreeSet<usize> = sessions.values().map(Vec::len).collect();
    assert_eq!(lengths.len(), 5, "turns are drawn");
    let thinks: Vec<u64> = plan.requests.iter().filter_map(|r| Some(r.after.as_ref()?.think_ns)).collect();
    let mean_s = thinks.iter().sum::<u64>() as f64 / thinks.len() as f64 / 1e9;
    assert!((1.5..2.6).contains(&mean_s), "{mean_s}");
}

#[test]
fn children_go_on_from_their_parent_and_the_join_from_all_of_them() {
    let plan = plan_of(AGENTIC, POISSON, 1);
    check(&plan);
    let mut sessions: BTreeMap<u64, Vec<&PlannedRequest>> = BTreeMap::new();
    plan.requests.iter().for_each(|r| sessions.entry(r.session.unwrap()).or_default().push(r));
    assert_eq!(sessions.len(), 10);
    for family in sessions.values() {
        let (parent, join, children) = (family[0], family[family.len() - 1], &family[1..family.len() - 1]);
        assert!((2..=4).contains(&children.len()));
        assert_eq!((parent.prompt_tokens(), parent.output_tokens), (150, 20));
        for child in children {
            assert_eq!(&*child.after.as_ref().unwrap().seqs, [parent.seq as u32]);
            assert_eq!((child.prompt_tokens(), child.output_tokens), (150 + 20 + 7, 9));
            assert_eq!(child.replies().collect::<Vec<_>>(), [parent.seq as u32]);
        }
        let seqs: Vec<u32> = children.iter().map(|child| child.seq as u32).collect();
        assert_eq!(&*join.after.as_ref().unwrap().seqs, seqs);
        assert_eq!(join.replies().collect::<Vec<_>>()[1..], seqs);
        assert_eq!(join.prompt_tokens(), 150 + 20 + 9 * seqs.len() as u32 + 5);
        let own: BTreeSet<Segment> =
            children.iter().map(|child| child.prompt[child.prompt.len() - 1]).collect();
        assert_eq!(own.len(), children.len(), "every child has its own text");
    }
    let without = AGENTIC.replace("join_tokens = 5\n", "");
    let plan = plan_of(&without, POISSON, 1);
    assert!(plan.requests.iter().all(|r| r.after.as_ref().is_none_or(|after| after.seqs.len() == 1)));
}

#[test]
fn real_replies_stand_where_the_plan_wants_them() {
    let plan = plan_of(CHAT, POISSON, 1);
    let turn = plan.requests.iter().find(|r| r.replies().count() == 2).unwrap();
    // Shorter than planned: what came counts.
    let tokens = turn.tokens(|seq, tokens| tokens.extend([seq, seq]));
    let replies: Vec<u32> = turn.replies().collect();
    let at = (turn.prompt[0].tokens() + turn.prompt[1].tokens()) as usize;
    assert_eq!(tokens[at..at + 2], [replies[0]; 2]);
    let text: u32 =
        turn.prompt.iter().map(|s| if let Segment::Text { tokens, .. } = s { *tokens } else { 0 }).sum();
    assert_eq!(tokens.len(), text as usize + 4);
}

#[test]
fn closed_sessions_come_one_after_the_other() {
    let plan = plan_of(CHAT, "kind = \"closed\"\nconcurrency = 2", 1);
    check(&plan);
    assert!(plan.requests.is_sorted_by_key(|request| request.session));
}

#[test]
fn prompts_of_their_own_share_nothing() {
    let independent = "kind = \"independent\"\nrequests = 500\nprompt_tokens = { lognormal = { median = 200, sigma = 1.0, \
                       max = 2000 } }\noutput_tokens = 4";
    let plan = plan_of(independent, POISSON, 1);
    check(&plan);
    let blocks: BTreeSet<Segment> = plan.requests.iter().map(|request| request.prompt[0]).collect();
    assert_eq!(blocks.len(), 500);
    assert!(
        plan.requests.iter().all(|r| r.group.is_none() && r.session.is_none() && r.routing_key().is_none())
    );
}

#[test]
fn a_mix_has_its_shares_and_keeps_parts_apart() {
    let chat = CHAT.replace('\n', ", ");
    let shared = "kind = \"shared_prefix\", groups = 5, prompts_per_group = 40, system_tokens = 50, question_tokens = 5, \
                  output_tokens = 3, weight = 3.0";
    let mix = format!(
        "kind = \"mix\"\nrequests = 101\nparts = [{{ {chat}, weight = 1.0 }}, {{ {shared} }}, {{ {chat} }}]"
    );
    let plan = plan_of(&mix, POISSON, 1);
    check(&plan);
    let starts: Vec<&PlannedRequest> = plan.requests.iter().filter(|r| r.after.is_none()).collect();
    assert_eq!(starts.len(), 101);
    // Weights 1, 3 and 1 of 101: 20.2, 60.6 and 20.2.
    let of_part = |part: u64| starts.iter().filter(|r| r.session.is_some_and(|s| s >> 32 == part)).count();
    assert_eq!([of_part(1), of_part(3)], [20, 20]);
    let alone = starts.iter().filter(|r| r.session.is_none()).count();
    assert_eq!(alone, 61);
    let groups: BTreeSet<u32> =
        starts.iter().filter(|r| r.session.is_none()).filter_map(|r| r.group).collect();
    assert_eq!(groups, (3..8).collect(), "after the three groups of the first part");
    let systems = |part: u64| -> BTreeSet<Segment> {
        starts.iter().filter(|r| r.session.is_some_and(|s| s >> 32 == part)).map(|r| r.prompt[0]).collect()
    };
    assert_eq!((systems(1).len(), systems(3).len()), (3, 3));
    assert!(systems(1).is_disjoint(&systems(3)), "equal parts have prompts of their own");
    let parts: Vec<u64> = starts.iter().map(|r| r.session.map_or(2, |session| session >> 32)).collect();
    let changes = parts.windows(2).filter(|pair| pair[0] != pair[1]).count();
    // Of 100 neighbours a share of 1 − (0.2² + 0.6² + 0.2²) is of different parts.
    assert!((40..=72).contains(&changes), "parts are mixed: {changes} changes");
}

#[test]
fn plans_are_functions_of_the_seed() {
    for workload in [CHAT, AGENTIC] {
        assert_eq!(plan_of(workload, POISSON, 4), plan_of(workload, POISSON, 4));
        assert_ne!(plan_of(workload, POISSON, 4), plan_of(workload, POISSON, 5));
    }
}

#[test]
fn sessions_route_by_their_own_key_and_others_by_their_group() {
    let plan = plan_of(CHAT, POISSON, 1);
    let keys: BTreeSet<String> = plan.requests.iter().filter_map(PlannedRequest::routing_key).collect();
    assert_eq!(keys.len(), 50);
    assert!(keys.contains("session-7"));
}

/// All lengths alike, so that two of one request agree only if they were drawn together.
const WIDE: &str = "{ uniform = [1, 1000000] }";

#[test]
fn lengths_of_one_request_are_drawn_apart() {
    let kinds = [
        format!("kind = \"independent\"\nrequests = 400\nprompt_tokens = {WIDE}\noutput_tokens = {WIDE}"),
        format!(
            "kind = \"shared_prefix\"\ngroups = 20\nprompts_per_group = 20\nsystem_tokens = {WIDE}\n\
             question_tokens = {WIDE}\noutput_tokens = {WIDE}"
        ),
        format!(
            "kind = \"prefix_tree\"\nrequests = 400\nlevels = [{{ fan_out = 2, tokens = {WIDE} }}, \
             {{ fan_out = 3, tokens = {WIDE} }}]\nquestion_tokens = {WIDE}\noutput_tokens = {WIDE}"
        ),
        format!(
            "kind = \"chat\"\nsessions = 100\nturns = 4\nquestion_tokens = {WIDE}\noutput_tokens = {WIDE}\n\
             think = {{ uniform = [\"0s\", \"1s\"] }}\nsystem_tokens = {WIDE}\nsystem_prompts = 50"
        ),
        format!(
            "kind = \"agentic\"\nsessions = 100\nchildren = 3\nquestion_tokens = {WIDE}\noutput_tokens = {WIDE}\n\
             child_tokens = {WIDE}\nchild_output_tokens = {WIDE}\njoin_tokens = {WIDE}\n\
             think = {{ uniform = [\"0s\", \"1s\"] }}"
        ),
    ];
    for kind in kinds {
        for request in plan_of(&kind, POISSON, 1).requests {
            // Times to think in the same measure.
            let think = request.after.as_ref().map(|after| after.think_ns as f64 / 1e9);
            let texts = request.prompt.iter().filter(|segment| matches!(segment, Segment::Text { .. }));
            let lengths = texts.map(|s| s.tokens()).chain([request.output_tokens]);
            let mut drawn: Vec<f64> = lengths.map(|length| f64::from(length) / 1e6).chain(think).collect();
            drawn.sort_by(f64::total_cmp);
            assert!(drawn.windows(2).all(|pair| pair[1] - pair[0] > 1.5e-6), "{kind}: {request:?}");
        }
    }
}

/// One number that any change of a plan changes.
fn digest(plan: &Plan) -> u64 {
    let mut sum = 0;
    let mut add = |value: u64| sum = mix(sum ^ value);
    for request in &plan.requests {
        let (group, session) =
            (request.group.map_or(0, |g| u64::from(g) + 1), request.session.map_or(0, |s| s + 1));
        [request.at_ns, request.output_tokens.into(), group, session].into_iter().for_each(&mut add);
        for segment in &request.prompt {
            let (name, tokens) = match *segment {
                Segment::Text { block, tokens } => (block, tokens),
                Segment::Reply { seq, tokens } => (seq.into(), tokens),
            };
            [name, tokens.into()].into_iter().for_each(&mut add);
        }
        if let Some(after) = &request.after {
            add(after.think_ns);
            after.seqs.iter().for_each(|seq| add((*seq).into()));
        }
    }
    sum
}

/// What was run once can be run again: baselines and reports name a seed and nothing else.
#[test]
fn a_seed_means_the_same_plan_for_ever() {
    let zipf = "kind = \"shared_prefix\"\ngroups = 9\nprompts_per_group = 5\nsystem_tokens = 100\nquestion_tokens = 10\n\
                output_tokens = { lognormal = { median = 20, sigma = 0.5 } }\npopularity = { zipf = 1.0 }\n\
                match_ratio = { uniform = [0.1, 0.9] }";
    let tree = "kind = \"prefix_tree\"\nrequests = 40\nlevels = [{ fan_out = 2, tokens = 50 }, { fan_out = 3, \
                tokens = { zipf = { exponent = 1.1, max = 40 } } }]\nquestion_tokens = 10\noutput_tokens = 5";
    let alone = "kind = \"independent\"\nrequests = 40\nprompt_tokens = { empirical = [[10, 1], [20, 3]] }\noutput_tokens = 5";
    let mix = format!(
        "kind = \"mix\"\nrequests = 8\nparts = [{{ {}, weight = 3.0 }}, {{ {} }}]",
        CHAT.replace('\n', ", "),
        AGENTIC.replace('\n', ", ")
    );
    let gamma = "kind = \"gamma\"\nrate = 5.0\nburstiness = 0.3";
    let ramp = "kind = \"ramp\"\nfrom = 1.0\nto = 9.0\nover = \"3s\"";
    let got =
        [(zipf, POISSON), (tree, gamma), (alone, ramp), (CHAT, POISSON), (AGENTIC, POISSON), (&mix, POISSON)]
            .map(|(workload, arrival)| digest(&plan_of(workload, arrival, 1)));
    assert_eq!(
        got,
        [
            4_075_973_392_515_944_260,
            3_379_908_445_148_678_115,
            8_206_638_200_545_780_508,
            4_044_668_231_674_660_253,
            10_358_965_255_388_657_334,
            5_351_056_876_111_356_928
        ]
    );
}
