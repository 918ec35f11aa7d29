//! Whom a request for a model may go to, of all roles together.

use super::scope::{Models, Scope};
use super::{Fleet, PerRole, Role};
use crate::ScopeId;
use crate::plan::Scopes;
use crate::request::UnknownModel;

/// Scopes of each role that are there from the beginning, before those of single models.
const FIXED: [Models; 2] = [Models::Every, Models::Unstated];

/// Of whom a request may go to, the part that [`FIXED`] tells.
#[derive(Clone, Copy)]
enum Fixed {
    Every = 0,
    Unstated = 1,
}

impl Fleet {
    /// The first scopes of a fleet.
    pub(super) fn fixed_scopes() -> Vec<Scope> {
        let of_role = |role| FIXED.map(|models| Scope::new(role, models));
        Role::ALL.into_iter().flat_map(of_role).collect()
    }

    /// The scopes of a model's workers. A role has none if nobody of it could serve the model: an answer of a wrong model is
    /// worse than none. One whose workers have all left keeps that of a model which they had stated.
    pub(crate) fn scopes(&self, model: Option<&str>) -> Result<Scopes, UnknownModel> {
        let Some(name) = model else { return Ok(self.filled(Fixed::Every)) };
        let base = || name.split_once(':').and_then(|(base, _)| self.stated(base));
        let Some(stated) = self.stated(name).or_else(base) else {
            return self.who_may_serve_others().map(|fixed| self.filled(fixed));
        };
        let or_unstated = |role| stated.get(role).or_else(|| self.if_filled(role, Fixed::Unstated));
        Ok(PerRole::of(or_unstated))
    }

    /// Sees to it that there is a scope of this role and model.
    pub(super) fn ensure_scope(&mut self, role: Role, model: Option<&str>) {
        let Some(model) = model else { return };
        let known = self.models.iter().position(|(name, _)| name == model).unwrap_or_else(|| {
            self.models.push((model.to_owned(), Scopes::default()));
            self.models.len() - 1
        });
        let place = self.models[known].1.get_mut(role);
        if place.is_none() {
            *place = Some(ScopeId(self.scopes.len() as u32));
            let mut scope = Scope::new(role, Models::One(model.to_owned()));
            self.workers.iter().for_each(|worker| scope.enlist(worker));
            self.scopes.push(scope);
        }
    }

    /// Who gets a request for a model that nobody has stated: everybody, as long as there is no doubt which model is
    /// meant; otherwise those that have not said what they serve.
    fn who_may_serve_others(&self) -> Result<Fixed, UnknownModel> {
        let unstated = PerRole::of(|role| self.members_of(Self::fixed(role, Fixed::Unstated)));
        let mut stated = self.scopes.iter().filter_map(|scope| match &scope.models {
            // Those that have not said which are members of every model's scope.
            Models::One(model) if scope.workers.members.len() > *unstated.get(scope.role) => Some(model),
            _ => None,
        });
        let first = stated.next();
        if stated.all(|model| Some(model) == first) {
            return Ok(Fixed::Every);
        }
        let some_unstated = unstated.iter().any(|workers| *workers > 0);
        if some_unstated { Ok(Fixed::Unstated) } else { Err(UnknownModel) }
    }

    /// The scopes of a model that some worker has stated; `None` if none ever has.
    fn stated(&self, name: &str) -> Option<&Scopes> {
        self.models.iter().find(|(model, _)| model == name).map(|(_, scopes)| scopes)
    }

    /// Of each role the fixed scope, where somebody is in it.
    fn filled(&self, fixed: Fixed) -> Scopes {
        PerRole::of(|role| self.if_filled(role, fixed))
    }

    fn if_filled(&self, role: Role, fixed: Fixed) -> Option<ScopeId> {
        Some(Self::fixed(role, fixed)).filter(|scope| self.members_of(*scope) > 0)
    }

    fn members_of(&self, scope: ScopeId) -> usize {
        self.workers_of(scope).map_or(0, |workers| workers.members.len())
    }

    fn fixed(role: Role, fixed: Fixed) -> ScopeId {
        ScopeId((role as usize * FIXED.len() + fixed as usize) as u32)
    }
}
