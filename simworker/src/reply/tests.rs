use protocol::tokenizer::encode;

use super::*;

const TEXT: &str = "one two äöü three four";

fn wish(texts: &[&str], tokens: &[Token], output: Output) -> Wish {
    let texts = texts.iter().map(|text| Arc::from(*text)).collect();
    let stops = Stops { texts, tokens: tokens.to_vec(), ..Stops::default() };
    Wish { output, ignore_eos: false, stops: Arc::new(stops), script: Some(encode(TEXT).into()) }
}

fn reply(wish: &Wish) -> Reply {
    Reply::new(&[1, 2, 3], wish, 1000)
}

/// The whole reply: its text, its tokens, and what ended it.
fn whole(reply: &Reply) -> (String, u32, Option<Matched>) {
    let tokens = reply.ends_after().unwrap_or(reply.budget);
    (reply.text(0, tokens), tokens, reply.matched(tokens).cloned())
}

fn text(stop: &str) -> Option<Matched> {
    Some(Matched::Text(stop.into()))
}

#[test]
fn a_stop_string_ends_the_reply_wherever_tokens_begin() {
    // Tokens: "one", " two", " ä", "öü", " thr", "ee", " fou", "r".
    let cases = [
        ("inside a token", "w", "one t", 2),
        ("a whole token", " two", "one", 2),
        ("over the border of tokens", "o ä", "one tw", 3),
        ("of characters of several bytes", "öü t", "one two ä", 5),
        ("at the end", "our", "one two äöü three f", 8),
        ("at the beginning", "one", "", 1),
        ("empty", "", "", 1),
    ];
    for (case, stop, seen, tokens) in cases {
        let mut asked = wish(&[stop], &[], Output::Tokens(100));
        assert_eq!(whole(&reply(&asked)), (seen.into(), tokens, text(stop)), "{case}");
        Arc::make_mut(&mut asked.stops).are_shown = true;
        assert_eq!(whole(&reply(&asked)).0, format!("{seen}{stop}"), "{case}, shown");
    }
}

#[test]
fn the_stop_that_is_complete_first_counts_and_then_the_first_of_the_list() {
    let of = |stops: &[&str]| whole(&reply(&wish(stops, &[], Output::Tokens(100)))).2;
    assert_eq!(of(&["three", "two"]), text("two"));
    assert_eq!(of(&["o", "two"]), text("o"), "the first letter is in the first token");
    assert_eq!(of(&["wo", "two"]), text("wo"));
    assert_eq!(of(&["two", "wo"]), text("two"));
    let two = encode(" two")[0];
    let both = reply(&wish(&["tw"], &[two], Output::Tokens(100)));
    assert_eq!(whole(&both).2, text("tw"), "a string comes before a token");
}

#[test]
fn a_stop_token_is_not_seen_and_may_be_too_early() {
    let ids = encode(TEXT);
    let mut asked = wish(&[], &[ids[1], ids[4]], Output::Tokens(100));
    assert_eq!(whole(&reply(&asked)), ("one".into(), 2, Some(Matched::Token(ids[1]))));
    Arc::make_mut(&mut asked.stops).min_tokens = 1;
    assert_eq!(whole(&reply(&asked)).1, 2, "one token may come before it");
    Arc::make_mut(&mut asked.stops).min_tokens = 2;
    assert_eq!(whole(&reply(&asked)), ("one two äöü".into(), 5, Some(Matched::Token(ids[4]))));
    Arc::make_mut(&mut asked.stops).are_shown = true;
    assert_eq!(whole(&reply(&asked)).0, "one two äöü thr");
    asked.ignore_eos = true;
    assert_eq!(whole(&reply(&asked)).1, ids.len() as u32, "nor does any token count");
}

#[test]
fn a_budget_may_end_it_first_or_at_the_same_time() {
    let of = |budget| whole(&reply(&wish(&["o ä"], &[], Output::Tokens(budget))));
    assert_eq!(of(2), ("one two".into(), 2, None));
    assert_eq!(of(3), ("one tw".into(), 3, text("o ä")), "the string is there");
    assert_eq!(reply(&wish(&["o ä"], &[], Output::Tokens(3))).ends_after(), None, "not before its budget");
    assert_eq!(of(4).1, 3);
}

#[test]
fn an_open_reply_ends_by_itself() {
    let open = |min_tokens, ignore_eos| {
        let stops = Arc::new(Stops { min_tokens, ..Stops::default() });
        Reply::new(&[1, 2, 3], &Wish { output: Output::Open, ignore_eos, stops, script: None }, 1000)
    };
    let tokens = open(0, false).ends_after().unwrap();
    assert!((64..512).contains(&tokens));
    assert_eq!(open(0, false).matched(tokens), Some(&Matched::Token(END_OF_TEXT)));
    assert_eq!(open(600, false).ends_after(), Some(600));
    assert_eq!((open(0, true).ends_after(), open(0, true).budget), (None, 1000));
}

#[test]
fn text_that_may_be_the_beginning_of_a_stop_is_held_back() {
    let held = |stops: &[&str]| {
        let reply = reply(&wish(stops, &[], Output::Tokens(100)));
        (1..=8).filter(|tokens| reply.is_held_back(*tokens)).collect::<Vec<u32>>()
    };
    assert!(held(&[]).is_empty());
    assert!(held(&["zebra"]).is_empty());
    assert_eq!(held(&["two äöü four"]), [2, 3, 4], "and not once it goes on in another way");
    assert_eq!(held(&["e!", "ü!"]), [1, 4, 6]);
    assert!(held(&[""]).is_empty());
}

#[test]
fn what_is_shown_piece_by_piece_is_the_whole() {
    for stop in ["o ä", "hree", " fou", "none of it"] {
        let reply = reply(&wish(&[stop], &[], Output::Tokens(8)));
        let last = reply.ends_after().unwrap_or(8);
        let (mut sent, mut seen) = (0, String::new());
        for tokens in (1..=last).filter(|tokens| *tokens == last || !reply.is_held_back(*tokens)) {
            seen.push_str(&reply.text(sent, tokens));
            sent = tokens;
        }
        assert_eq!(seen, reply.text(0, last), "{stop}");
        assert_eq!(seen, TEXT.split(stop).next().unwrap());
    }
}

#[test]
fn a_stop_is_found_wherever_it_is_in_a_long_reply() {
    let naive = |block: u64, stop: &str, most: u32| {
        let ids: Vec<Token> = (0..most).map(|at| block_token(block, at)).collect();
        let to = decode(&ids).find(stop)? + stop.len();
        (1..=most).find(|tokens| decode(&ids[..*tokens as usize]).len() >= to)
    };
    let block = reply_block(&[1, 2, 3]);
    let ids = |from: u32, to: u32| decode(&(from..to).map(|at| block_token(block, at)).collect::<Vec<_>>());
    // Two tokens are rarely the same two again; what is looked at in one go ends after 512, 2048 and 8192.
    for at in [0, 510, 511, 512, 2046, 2047, 2048, 8191, 9998] {
        for most in [600, 2048, 10_000] {
            let stop = ids(at, at + 2);
            let asked = Wish { script: None, ..wish(&[&stop], &[], Output::Tokens(most)) };
            let found = Reply::new(&[1, 2, 3], &asked, 20_000);
            let end = found.end.as_ref().map(|end| end.tokens);
            assert_eq!(end, naive(block, &stop, most), "{at} of {most}");
        }
    }
}

#[test]
fn no_reply_is_longer_than_it_can_be() {
    for prompt in 0..200 {
        for output in [Output::Open, Output::Tokens(7), Output::Tokens(5000)] {
            for (ignore_eos, script) in [(false, None), (true, None), (false, Some(encode(TEXT).into()))] {
                let asked = Wish { output, ignore_eos, stops: Arc::default(), script };
                for room in [5, 1000] {
                    let made = Reply::new(&[prompt], &asked, room);
                    let tokens = made.ends_after().unwrap_or(made.budget).min(room);
                    assert!(tokens <= asked.most(room), "{asked:?} {tokens}");
                    assert!(ignore_eos || output != Output::Open || asked.most(1000) <= 511);
                }
            }
        }
    }
}
