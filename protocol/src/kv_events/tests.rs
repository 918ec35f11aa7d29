//! Vectors of SGLang 0.5.23, and what must hold of any batch.

use proptest::prelude::*;

use super::*;

/// The names of the blocks of a sequence.
fn names(seed: Option<Digest>, tokens: &[Token], page: usize) -> Vec<i64> {
    let mut parent = seed;
    let mut next = |page: &[Token]| {
        let digest = chain(parent, page);
        parent = Some(digest);
        digest.hash().0
    };
    tokens.chunks(page).map(&mut next).collect()
}

#[test]
fn names_are_those_of_the_engine() {
    let of = |tokens: &[Token], page| names(None, tokens, page);
    assert_eq!(of(&[0, 1, 2, 3, 4, 5, 6, 7], 4), [-4977211910723114241, 90435953025800507]);
    assert_eq!(of(&[0, 1, 2, 3, 9, 9, 9, 9], 4), [-4977211910723114241, 7107752202012750893], "a fork");
    assert_eq!(of(&[1, 2, 3], 1), [7470307888890966271, -1634645291211865391, 7325169757385981536]);
    assert_eq!(names(Some(salt_seed("tenantA")), &[0, 1, 2, 3], 4), [-536183418574591574]);
}

#[test]
fn a_namespace_renames_blocks() {
    assert_eq!(NamespaceSeed::of(None, None), None);
    let seeds = [(Some("a"), Some("bc")), (Some("ab"), Some("c")), (Some("abc"), None), (None, Some("abc"))];
    let names: Vec<BlockHash> = seeds
        .iter()
        .map(|(key, salt)| NamespaceSeed::of(*key, *salt).unwrap().apply(BlockHash(-7)))
        .collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name) && *name != BlockHash(-7));
    }
}

fn stored(hashes: &[i64], parent: Option<i64>, tokens: &[Token]) -> Stored {
    Stored {
        hashes: hashes.iter().copied().map(BlockHash).collect(),
        parent: parent.map(BlockHash),
        tokens: tokens.to_vec(),
        block_size: 1,
        lora_id: None,
        medium: Some(Medium::Gpu),
        cache_salt: None,
        session_id: None,
        lora_name: None,
    }
}

fn removed(hashes: &[i64], medium: Medium) -> KvEvent {
    KvEvent::Removed(Removed {
        hashes: hashes.iter().copied().map(BlockHash).collect(),
        medium: Some(medium),
    })
}

/// The bytes that msgspec writes for the same batch.
#[test]
fn bytes_are_those_of_the_engine() {
    let mut one = stored(&[1], None, &[5]);
    one.medium = None;
    let events = vec![
        KvEvent::Stored(one),
        KvEvent::Removed(Removed { hashes: vec![BlockHash(1)], medium: None }),
        KvEvent::Cleared,
    ];
    let bytes = encode(&Batch { ts: 1.0, events, rank: Some(0) }, Shape::Map);
    let mut expected = b"\x93\xcb\x3f\xf0\0\0\0\0\0\0\x93".to_vec();
    expected.extend(b"\x86\xa4type\xabBlockStored\xacblock_hashes\x91\x01\xb1parent_block_hash\xc0");
    expected.extend(b"\xa9token_ids\x91\x05\xaablock_size\x01\xa7lora_id\xc0");
    expected.extend(b"\x82\xa4type\xacBlockRemoved\xacblock_hashes\x91\x01");
    expected.extend(b"\x81\xa4type\xb0AllBlocksCleared\x00");
    assert_eq!(bytes, expected);
}

#[test]
fn older_batches_are_arrays_all_the_way() {
    let events = vec![KvEvent::Stored(stored(&[-1, 300], Some(7), &[5, 70_000])), KvEvent::Cleared];
    let batch = Batch { ts: 1.0, events, rank: None };
    let bytes = encode(&batch, Shape::Array);
    let mut expected = b"\x92\xcb\x3f\xf0\0\0\0\0\0\0\x92".to_vec();
    expected
        .extend(b"\x97\xabBlockStored\x92\xff\xcd\x01\x2c\x07\x92\x05\xce\x00\x01\x11\x70\x01\xc0\xa3GPU");
    expected.extend(b"\x91\xb0AllBlocksCleared");
    assert_eq!(bytes, expected);
    assert_eq!(decode(&bytes), Ok(batch));
    // A rank that is nil, and no medium.
    let short = b"\x93\xca\x3f\x80\0\0\x91\x96\xabBlockStored\x91\x01\xc0\x91\x05\x01\xc0\xc0";
    let mut one = stored(&[1], None, &[5]);
    one.medium = None;
    assert_eq!(decode(short), Ok(Batch { ts: 1.0, events: vec![KvEvent::Stored(one)], rank: None }));
}

#[test]
fn alike_events_become_one() {
    let salted = |salt: &str, hash, parent| {
        KvEvent::Stored(Stored { cache_salt: Some(salt.into()), ..stored(&[hash], parent, &[9]) })
    };
    let mut events = Vec::new();
    let script = [
        KvEvent::Stored(stored(&[1], None, &[5])),
        KvEvent::Stored(stored(&[2], Some(1), &[6])),
        KvEvent::Stored(stored(&[3], Some(1), &[7])),
        salted("a", 4, Some(3)),
        salted("b", 5, Some(4)),
        removed(&[3, 2], Medium::Gpu),
        removed(&[1], Medium::Gpu),
        removed(&[1], Medium::CpuPinned),
        KvEvent::Stored(stored(&[1], None, &[5])),
        KvEvent::Cleared,
        KvEvent::Cleared,
    ];
    script.into_iter().for_each(|event| append(&mut events, event));
    let expected = [
        KvEvent::Stored(stored(&[1, 2], None, &[5, 6])),
        KvEvent::Stored(stored(&[3], Some(1), &[7])),
        salted("a", 4, Some(3)),
        salted("b", 5, Some(4)),
        removed(&[3, 2, 1], Medium::Gpu),
        removed(&[1], Medium::CpuPinned),
        KvEvent::Stored(stored(&[1], None, &[5])),
        KvEvent::Cleared,
        KvEvent::Cleared,
    ];
    assert_eq!(events, expected);
}

#[test]
fn what_newer_engines_add_is_passed_over() {
    let bytes = b"\x94\x01\x91\x83\xa5extra\x82\x01\x92\xc2\xc4\x02ab\xa1x\xd6\x01abcd\xa4type\
        \xb0AllBlocksCleared\xa4more\xc0\x07\xc3";
    assert_eq!(decode(bytes), Ok(Batch { ts: 1.0, events: vec![KvEvent::Cleared], rank: Some(7) }));
}

#[test]
fn what_is_no_batch_is_refused_in_words() {
    let cases: [(&str, &[u8], &str); 7] = [
        ("nothing", b"", "end at 0"),
        ("text", b"\xa1x", "an array"),
        ("cut", b"\x93\xcb\x3f\xf0", "middle of a value"),
        ("one", b"\x91\x01", "two or three"),
        ("unknown", b"\x92\x01\x91\x91\xa3New", "BlockStored, BlockRemoved"),
        ("no hashes", b"\x92\x01\x91\x81\xa4type\xacBlockRemoved", "lacks block_hashes"),
        ("more", b"\x92\x01\x90\x00", "more follows"),
    ];
    for (case, bytes, expected) in cases {
        let message = decode(bytes).expect_err(case).to_string();
        assert!(message.contains(expected), "{case}: {message}");
    }
}

fn any_text() -> impl Strategy<Value = Option<Arc<str>>> {
    proptest::option::of("[a-zé]{0,40}".prop_map(Arc::from))
}

fn any_medium() -> impl Strategy<Value = Option<Medium>> {
    proptest::option::of(prop::sample::select(Medium::ALL.to_vec()))
}

fn any_hashes() -> impl Strategy<Value = Vec<BlockHash>> {
    let number = prop_oneof![any::<i64>(), -70_000..70_000_i64, -200..200_i64];
    prop::collection::vec(number.prop_map(BlockHash), 0..40)
}

fn any_event() -> impl Strategy<Value = KvEvent> {
    let tokens = prop::collection::vec(prop_oneof![any::<Token>(), 0..300_u32], 0..40);
    let parent = proptest::option::of(any::<i64>().prop_map(BlockHash));
    let parts =
        (any_hashes(), parent, tokens, any::<u32>(), any_medium(), any_text(), any_text(), any_text());
    prop_oneof![
        parts.prop_map(|(hashes, parent, tokens, block_size, medium, cache_salt, session_id, lora_name)| {
            let lora_id = parent.map(|hash| hash.0 >> 20);
            KvEvent::Stored(Stored {
                hashes,
                parent,
                tokens,
                block_size,
                lora_id,
                medium,
                cache_salt,
                session_id,
                lora_name,
            })
        }),
        (any_hashes(), any_medium())
            .prop_map(|(hashes, medium)| KvEvent::Removed(Removed { hashes, medium })),
        Just(KvEvent::Cleared),
    ]
}

proptest! {
    #[test]
    fn batches_survive_the_wire(
        ts in 0.0..2e9,
        events in prop::collection::vec(any_event(), 0..20),
        rank in proptest::option::of(0..300_u32),
    ) {
        let batch = Batch { ts, events, rank };
        prop_assert_eq!(decode(&encode(&batch, Shape::Map)), Ok(batch.clone()));
        let bytes = encode(&batch, Shape::Array);
        let got = decode(&bytes).unwrap();
        // The older shape does not carry the newer fields.
        let mut expected = batch;
        for event in &mut expected.events {
            if let KvEvent::Stored(stored) = event {
                (stored.cache_salt, stored.session_id, stored.lora_name) = (None, None, None);
            }
        }
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn no_bytes_are_a_disaster(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = decode(&bytes);
        let _ = decode(&[b"\x92\x01\x91".as_slice(), &bytes].concat());
    }
}
