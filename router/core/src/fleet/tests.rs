use proptest::prelude::*;

use super::*;
use crate::request::UnknownModel;

fn spec(url: &str, model: Option<&str>, role: Role) -> WorkerSpec {
    WorkerSpec { url: url.into(), model: model.map(str::to_owned), role }
}

fn ids(fleet: &Fleet, role: Role, model: Option<&str>) -> Vec<u32> {
    let scopes = fleet.scopes(model).expect("a known model");
    let workers = scopes.get(role).and_then(|scope| fleet.workers_of(scope));
    workers.map(|workers| workers.members.iter().map(|id| id.0).collect()).unwrap_or_default()
}

fn scope(fleet: &Fleet, role: Role, model: &str) -> Result<Option<ScopeId>, UnknownModel> {
    fleet.scopes(Some(model)).map(|scopes| *scopes.get(role))
}

#[test]
fn a_scope_is_one_role_and_one_model_or_all() {
    let mut fleet = Fleet::new();
    fleet.add(spec("a", Some("m1"), Role::Regular), true);
    fleet.add(spec("b", Some("m2"), Role::Regular), true);
    fleet.add(spec("c", None, Role::Regular), true);
    fleet.add(spec("d", Some("m1"), Role::Prefill), true);
    assert_eq!(ids(&fleet, Role::Regular, None), [0, 1, 2]);
    assert_eq!(
        ids(&fleet, Role::Regular, Some("m1")),
        [0, 2],
        "a worker of no stated model serves every one"
    );
    assert_eq!(ids(&fleet, Role::Regular, Some("made up")), [2], "two others are stated");
    assert_eq!(ids(&fleet, Role::Prefill, Some("m1")), [3]);
    assert_eq!(ids(&fleet, Role::Decode, None), [] as [u32; 0]);
}

#[test]
fn scopes_differ_by_role_and_stay_when_workers_go() {
    let mut fleet = Fleet::new();
    fleet.add(spec("a", Some("m"), Role::Prefill), true);
    let prefill = scope(&fleet, Role::Prefill, "m");
    fleet.add(spec("b", Some("m"), Role::Decode), true);
    assert_ne!(prefill, scope(&fleet, Role::Decode, "m"));
    assert!(fleet.remove(WorkerId(0)));
    assert!(!fleet.remove(WorkerId(0)));
    assert_eq!(prefill, scope(&fleet, Role::Prefill, "m"));
}

#[test]
fn a_made_up_model_is_refused_only_where_everybody_says_another() {
    let scope = |models: &[Option<&str>], name: &str| {
        let mut fleet = Fleet::new();
        for model in models {
            fleet.add(spec("a", *model, Role::Regular), true);
        }
        let scopes = fleet.scopes(Some(name))?;
        Ok(scopes.regular.and_then(|scope| fleet.scope_model(scope)).map(str::to_owned))
    };
    let all = Ok(None);
    let found = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(scope(&[Some("m1"), Some("m2")], "x"), Err(UnknownModel));
    assert_eq!(scope(&[Some("m1"), Some("m2"), None], "x"), all, "the last one may serve it");
    assert_eq!(scope(&[None, Some("m1"), Some("m2")], "x"), all);
    assert_eq!(scope(&[Some("m1"), Some("m1")], "x"), all, "there is no doubt who is meant");
    assert_eq!(scope(&[], "x"), all, "there may be some later");
    for name in ["m1", "m1:adapter", "m1:adapter:2"] {
        assert_eq!(scope(&[Some("m1"), Some("m2")], name), found("m1"), "{name}");
    }
    for name in ["m1x:adapter", ":m1", "adapter:m1", ""] {
        assert_eq!(scope(&[Some("m1"), Some("m2")], name), Err(UnknownModel), "{name}");
    }
    assert_eq!(scope(&[Some("m1"), Some("m1:8b")], "m1:8b"), found("m1:8b"), "a full name comes first");
}

#[test]
fn the_roles_together_say_which_model_is_meant() {
    let fleet = |workers: &[(Role, Option<&str>)]| {
        let mut fleet = Fleet::new();
        workers.iter().for_each(|(role, model)| _ = fleet.add(spec("a", *model, *role), true));
        fleet
    };
    let of = |fleet: &Fleet, name: &str| Role::ALL.map(|role| ids(fleet, role, Some(name)));
    let (regular, prefill, decode) = (Role::Regular, Role::Prefill, Role::Decode);
    let two = [(regular, Some("m1")), (prefill, Some("m2")), (decode, Some("m2"))];
    let mut fleet_of_two = fleet(&two);
    assert_eq!(of(&fleet_of_two, "m1"), [vec![0], vec![], vec![]], "a pair of another model is no way out");
    assert_eq!(of(&fleet_of_two, "m2:adapter"), [vec![], vec![1], vec![2]]);
    assert_eq!(fleet_of_two.scopes(Some("x")), Err(UnknownModel));
    let some = fleet(&[two.as_slice(), &[(decode, None)]].concat());
    assert_eq!(of(&some, "m1"), [vec![0], vec![], vec![3]], "the last one may serve it");
    assert_eq!(of(&some, "x"), [vec![], vec![], vec![3]]);
    let one = fleet(&[(prefill, Some("m")), (decode, Some("m"))]);
    assert_eq!(of(&one, "x"), [vec![], vec![0], vec![1]], "there is no doubt who is meant");
    assert_eq!(one.scopes(Some("x")).map(|scopes| scopes.regular), Ok(None));
    fleet_of_two.remove(WorkerId(1));
    let left = fleet_of_two.scopes(Some("m2")).expect("it is known");
    assert!(left.regular.is_none() && left.prefill.is_some() && left.decode.is_some(), "a scope stays");
}

#[test]
fn a_role_that_is_found_out_later_moves_a_worker_to_other_scopes() {
    let mut fleet = Fleet::new();
    fleet.add(spec("a", Some("m"), Role::Regular), true);
    fleet.add(spec("b", None, Role::Regular), true);
    assert!(fleet.set_role(WorkerId(0), Role::Prefill) && fleet.set_role(WorkerId(1), Role::Decode));
    assert!(!fleet.set_role(WorkerId(1), Role::Decode), "no news");
    assert!(!fleet.set_role(WorkerId(7), Role::Decode), "nobody");
    let of = |name| Role::ALL.map(|role| ids(&fleet, role, name));
    assert_eq!(of(None), [vec![], vec![0], vec![1]]);
    assert_eq!(of(Some("m")), [vec![], vec![0], vec![1]]);
}

#[test]
fn a_made_up_model_goes_to_no_worker_of_another() {
    let mut fleet = Fleet::new();
    for model in [Some("m1"), Some("m2"), None] {
        fleet.add(spec("a", model, Role::Regular), true);
    }
    assert_eq!(ids(&fleet, Role::Regular, Some("x")), [2]);
    assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0, 2]);
    assert_eq!(ids(&fleet, Role::Regular, None), [0, 1, 2]);
    fleet.set_model(WorkerId(1), Some("m1".into()));
    assert_eq!(ids(&fleet, Role::Regular, Some("x")), [0, 1, 2], "one model, and no doubt who is meant");
}

#[test]
fn a_model_that_is_found_out_later_changes_the_scopes() {
    let mut fleet = Fleet::new();
    fleet.add(spec("a", None, Role::Regular), true);
    fleet.add(spec("b", None, Role::Regular), true);
    assert!(
        fleet.set_model(WorkerId(0), Some("m1".into())) && fleet.set_model(WorkerId(1), Some("m2".into()))
    );
    assert!(!fleet.set_model(WorkerId(1), Some("m2".into())), "no news");
    assert!(!fleet.set_model(WorkerId(7), Some("m7".into())), "nobody");
    assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0]);
    assert_eq!(fleet.scopes(Some("m7")), Err(UnknownModel));
    let before = scope(&fleet, Role::Regular, "m2");
    assert!(fleet.set_model(WorkerId(1), Some("m1".into())));
    assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0, 1]);
    assert_eq!(scope(&fleet, Role::Regular, "m2"), before, "a scope stays");
    assert!(fleet.set_model(WorkerId(1), None));
    assert_eq!(ids(&fleet, Role::Regular, Some("m2")), [1]);
}

#[derive(Debug, Clone)]
enum Change {
    Add(Role, Option<u8>, bool),
    Remove(u32),
    Healthy(u32, bool),
    Drain(u32),
    Model(u32, Option<u8>),
    Role(u32, Role),
}

fn change() -> impl Strategy<Value = Change> {
    let model = || prop::option::of(0..3_u8);
    let role = || prop::sample::select(&Role::ALL[..2]);
    prop_oneof![
        3 => (role(), model(), any::<bool>()).prop_map(|(role, model, well)| Change::Add(role, model, well)),
        1 => (0..20_u32).prop_map(Change::Remove),
        2 => (0..20_u32, any::<bool>()).prop_map(|(id, well)| Change::Healthy(id, well)),
        1 => (0..20_u32).prop_map(Change::Drain),
        2 => (0..20_u32, model()).prop_map(|(id, model)| Change::Model(id, model)),
        1 => (0..20_u32, role()).prop_map(|(id, role)| Change::Role(id, role)),
    ]
}

fn apply(fleet: &mut Fleet, change: &Change) {
    let name = |model: Option<u8>| model.map(|n| format!("m{n}"));
    match *change {
        Change::Add(role, model, well) => {
            fleet.add(WorkerSpec { url: "a".into(), model: name(model), role }, well);
        }
        Change::Remove(id) => drop(fleet.remove(WorkerId(id))),
        Change::Healthy(id, well) => drop(fleet.set_healthy(WorkerId(id), well)),
        Change::Drain(id) => drop(fleet.set_draining(WorkerId(id))),
        Change::Model(id, model) => drop(fleet.set_model(WorkerId(id), name(model))),
        Change::Role(id, role) => drop(fleet.set_role(WorkerId(id), role)),
    }
}

proptest! {
    #[test]
    fn the_lists_of_a_scope_are_what_a_look_at_all_workers_gives(changes in prop::collection::vec(change(), 0..60)) {
        let mut fleet = Fleet::new();
        for change in &changes {
            apply(&mut fleet, change);
            for scope in &fleet.scopes {
                let stays = |worker: &&Worker| scope.covers(worker) && !worker.draining;
                let ids = |keep: &dyn Fn(&&Worker) -> bool| -> Vec<WorkerId> {
                    fleet.workers.iter().filter(|worker| keep(worker)).map(|worker| worker.id).collect()
                };
                prop_assert_eq!(&scope.workers.members, &ids(&stays));
                prop_assert_eq!(&scope.workers.able, &ids(&|worker| stays(worker) && worker.takes_requests()));
            }
        }
    }
}

#[test]
fn ids_are_never_given_twice() {
    let mut fleet = Fleet::new();
    fleet.add(spec("a", None, Role::Regular), true);
    fleet.remove(WorkerId(0));
    assert_eq!(fleet.add(spec("a", None, Role::Regular), true).id, WorkerId(1));
}
