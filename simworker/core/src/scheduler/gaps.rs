//! How long ago the members of the running batch got their newest tokens.

use crate::request::Event;

/// Members by the time of their newest token: almost always one group, that of the last decode step, and one for
/// each prefill batch that has joined since.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    groups: Vec<Group>,
    last_step_ns: u64,
}

#[derive(Debug)]
struct Group {
    token_ns: u64,
    members: u32,
}

impl Gaps {
    /// So many members join with a token of that time.
    pub(crate) fn join(&mut self, token_ns: u64, members: u32) {
        match self.groups.iter_mut().find(|group| group.token_ns == token_ns) {
            Some(group) => group.members += members,
            None if members > 0 => self.groups.push(Group { token_ns, members }),
            None => {}
        }
    }

    /// A member leaves whose newest token is of that time.
    pub(crate) fn leave(&mut self, token_ns: u64) {
        if let Some(group) = self.groups.iter_mut().find(|group| group.token_ns == token_ns) {
            group.members -= 1;
        }
        self.groups.retain(|group| group.members > 0);
    }

    /// The time of the newest token of all that have had a step.
    pub(crate) fn last_step_ns(&self) -> u64 {
        self.last_step_ns
    }

    /// Every member gets a token.
    pub(crate) fn step(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let mut members = 0;
        for group in &self.groups {
            members += group.members;
            events.push(Event::Step { at_ns, gap_ns: at_ns - group.token_ns, tokens: group.members });
        }
        self.groups.truncate(1);
        if let Some(all) = self.groups.first_mut() {
            *all = Group { token_ns: at_ns, members };
        }
        self.last_step_ns = at_ns;
    }

    pub(crate) fn members(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.members)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_own_gap_once() {
        let mut gaps = Gaps::default();
        let mut events = Vec::new();
        gaps.join(10, 2);
        gaps.join(11, 0);
        gaps.step(15, &mut events);
        gaps.join(20, 1);
        gaps.step(27, &mut events);
        gaps.step(30, &mut events);
        let step = |at_ns, gap_ns, tokens| Event::Step { at_ns, gap_ns, tokens };
        assert_eq!(events, [step(15, 5, 2), step(27, 12, 2), step(27, 7, 1), step(30, 3, 3)]);
    }

    #[test]
    fn a_member_leaves_the_group_of_its_newest_token() {
        let mut gaps = Gaps::default();
        let mut events = Vec::new();
        gaps.join(10, 1);
        gaps.step(15, &mut events);
        gaps.join(20, 1);
        gaps.leave(15);
        gaps.step(27, &mut events);
        assert_eq!(events.last(), Some(&Event::Step { at_ns: 27, gap_ns: 7, tokens: 1 }));
        assert_eq!(gaps.last_step_ns(), 27);
        gaps.leave(27);
        assert_eq!(gaps.members(), 0);
    }
}
