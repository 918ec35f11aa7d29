//! Roles, and what there is one of for each of them.

/// What a worker does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill and decode.
    Regular,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Regular, Role::Prefill, Role::Decode];

    /// The word used in files, metrics and answers.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Role::Regular => "regular",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

/// One for each role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PerRole<T> {
    /// Of [`Role::Regular`].
    pub regular: T,
    /// Of [`Role::Prefill`].
    pub prefill: T,
    /// Of [`Role::Decode`].
    pub decode: T,
}

// === impl PerRole ===

impl<T> PerRole<T> {
    /// Makes one for each role.
    pub fn of(mut make: impl FnMut(Role) -> T) -> Self {
        Self { regular: make(Role::Regular), prefill: make(Role::Prefill), decode: make(Role::Decode) }
    }

    /// That of a role.
    #[must_use]
    pub fn get(&self, role: Role) -> &T {
        match role {
            Role::Regular => &self.regular,
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
        }
    }

    /// That of a role, to be changed.
    pub fn get_mut(&mut self, role: Role) -> &mut T {
        match role {
            Role::Regular => &mut self.regular,
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
        }
    }

    /// All three, in the order of [`Role::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.regular, &self.prefill, &self.decode].into_iter()
    }

    /// All three, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        [&mut self.regular, &mut self.prefill, &mut self.decode].into_iter()
    }
}
