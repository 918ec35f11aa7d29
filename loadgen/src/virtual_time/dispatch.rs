//! From the client to the workers: choose and book the legs of a plan, and send them at once.

use std::sync::Arc;

use protocol::tokenizer::{Token, extend_with_block, reply_block};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::Matches;
use router_core::prompt::PromptView;
use router_core::{
    Assignment, Generated, NoPlan, Part, Plan, PlanMatches, PlanRequest, Role, RoutingKeys, Unroutable,
};
use simworker_core::{EngineRole, LoadBalance, Prompt, RequestId, Run};

use super::dice::BadRoom;
use super::shell::{Booked, Job, REQUEST_TIMEOUT_NS, Sent, name};
use super::wire::{Answer, Handover};
use super::world::{Event, Leg, World};
use crate::workload::{Pacing, Segment};

/// As live: after so long the first of those that wait tries again without news, for breakers close by themselves.
const LONGEST_PAUSE_NS: u64 = 500_000_000;

impl World {
    pub(super) fn arrive(&mut self, now_ns: u64, seq: usize) {
        let is_first = self.requests[seq].after.is_none();
        if matches!(self.pacing, Pacing::Open) && is_first {
            self.schedule_arrival(now_ns);
        } else {
            self.records[seq].intended_ns = now_ns;
        }
        self.records[seq].sent_ns = now_ns;
        self.jobs[seq] = Some(Box::default());
        self.budget.arrived(now_ns);
        if let Some(after_ns) = self.dice.client_leaves(seq as u64) {
            self.clock.at(now_ns + after_ns, Event::ClientGone(seq));
        }
        self.place(now_ns, seq);
    }

    pub(super) fn retry(&mut self, now_ns: u64, seq: usize, attempt: u32) {
        if self.jobs[seq].as_ref().is_some_and(|job| job.attempt == attempt) {
            self.place(now_ns, seq);
        }
    }

    /// Sends the attempt that is due, or lets it wait for the end of a decode stream.
    fn place(&mut self, now_ns: u64, seq: usize) {
        // Nobody passes by those that wait, unless it could be served by other workers than theirs.
        if !self.parked.is_empty() && self.scopes.regular.is_none() {
            return self.park(now_ns, seq);
        }
        match self.dispatch(now_ns, seq) {
            Ok(()) => {}
            Err(NoPlan { why: Unroutable::DispatchLimit, .. }) => self.park(now_ns, seq),
            Err(_) => self.end(now_ns, seq, Answer::failed(503, "no worker is available")),
        }
    }

    /// Lets an attempt wait behind all others, no longer than its request may take.
    fn park(&mut self, now_ns: u64, seq: usize) {
        self.parked.push_back(seq);
        let attempt = self.jobs[seq].as_ref().map_or(0, |job| job.attempt);
        let end_ns = self.records[seq].sent_ns.saturating_add(REQUEST_TIMEOUT_NS);
        self.clock.in_background(end_ns, Event::Overdue { seq, attempt });
        if !std::mem::replace(&mut self.front_tries, true) {
            self.clock.at(now_ns + LONGEST_PAUSE_NS, Event::FrontTries);
        }
    }

    pub(super) fn front_tries(&mut self, now_ns: u64) {
        self.unpark(now_ns);
        self.front_tries = !self.parked.is_empty();
        if self.front_tries {
            self.clock.at(now_ns + LONGEST_PAUSE_NS, Event::FrontTries);
        }
    }

    pub(super) fn overdue(&mut self, now_ns: u64, seq: usize, attempt: u32) {
        let waits = |job: &Job| job.attempt == attempt && job.sent.is_none();
        if self.jobs[seq].as_deref().is_some_and(waits) {
            self.end(now_ns, seq, Answer::failed(503, "decode_dispatch_limit"));
            self.unpark(now_ns);
        }
    }

    /// Lets those go on, in their order, that waited for the end of a decode stream.
    pub(super) fn unpark(&mut self, now_ns: u64) {
        while let Some(seq) = self.parked.front().copied() {
            // A client may have left meanwhile.
            let outcome = if self.jobs[seq].is_some() { self.dispatch(now_ns, seq) } else { Ok(()) };
            if matches!(outcome, Err(NoPlan { why: Unroutable::DispatchLimit, .. })) {
                return;
            }
            self.parked.pop_front();
            if outcome.is_err() {
                self.end(now_ns, seq, Answer::failed(503, "no worker is available"));
            }
        }
    }

    /// The shell's steps: look up, decide under the lock, credit, send.
    fn dispatch(&mut self, now_ns: u64, seq: usize) -> Result<(), NoPlan> {
        let Some(job) = &self.jobs[seq] else { return Ok(()) };
        let (attempt, exclude) = (job.attempt, job.exclude.clone());
        let parts = self.parts(seq);
        let view = PromptView::Generated(Generated::new(&parts));
        let matches = self.look_up(view);
        let key = self.requests[seq].routing_key();
        let request = self.question(seq, view, key.as_deref(), &exclude);
        let plan = self.router.plan(now_ns, &request, &matches);
        if let Ok(plan) = &plan {
            self.credit(view, plan);
            self.note(seq, plan);
            let prompt = self.prompt(&parts);
            self.send(now_ns, seq, attempt, plan, &prompt);
        }
        self.parts = parts;
        plan.map(|_| ())
    }

    /// What the prompt of a request is made of, with the replies in it as they came, in the scratch.
    fn parts(&mut self, seq: usize) -> Vec<Part> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let part = |segment: &Segment| {
            let (block, tokens) = match *segment {
                Segment::Text { block, tokens } => (block, tokens),
                Segment::Reply { seq, .. } => {
                    (self.reply_blocks[seq as usize], self.records[seq as usize].output_tokens as u32)
                }
            };
            Part { block, start: 0, tokens }
        };
        parts.extend(self.requests[seq].prompt.iter().map(part).filter(|part| part.tokens > 0));
        if self.chain.keeps_reply(seq) {
            self.reply_blocks[seq] = reply_block(&spelled(&parts));
        }
        parts
    }

    /// What an engine is given of it: runs if it never looks at tokens.
    fn prompt(&self, parts: &[Part]) -> Prompt {
        if self.sends_runs {
            let runs = parts.iter().map(|Part { block, tokens, .. }| Run { block: *block, tokens: *tokens });
            return runs.collect::<Arc<[Run]>>().into();
        }
        Arc::<[Token]>::from(spelled(parts)).into()
    }

    fn look_up(&self, view: PromptView<'_>) -> PlanMatches {
        let of = |scope: Option<ScopeId>, role: Role| match (&self.index, scope) {
            (Some(index), Some(scope)) if self.router.signals_of(role).prefix_index.is_some() => {
                index.lookup(scope, view)
            }
            _ => Matches::default(),
        };
        PlanMatches {
            regular: of(self.scopes.regular, Role::Regular),
            prefill: of(self.scopes.prefill, Role::Prefill),
            decode: of(self.scopes.decode, Role::Decode),
        }
    }

    fn question<'a>(
        &self,
        seq: usize,
        prompt: PromptView<'a>,
        routing_key: Option<&'a str>,
        exclude: &'a [WorkerId],
    ) -> PlanRequest<'a> {
        PlanRequest {
            scopes: self.scopes,
            prompt,
            prompt_tokens: u64::from(self.requests[seq].prompt_tokens()),
            output_budget: Some(u64::from(self.requests[seq].output_tokens)),
            keys: RoutingKeys { routing_key, ..RoutingKeys::default() },
            exclude,
            prefers_pair: None,
        }
    }

    fn credit(&mut self, view: PromptView<'_>, plan: &Plan) {
        let legs = match &plan.prefill {
            Some(prefill) => [(Role::Prefill, Some(prefill)), (Role::Decode, Some(&plan.decode))],
            None => [(Role::Regular, Some(&plan.decode)), (Role::Prefill, None)],
        };
        let Some(index) = &mut self.index else { return };
        for (role, leg) in legs {
            let Some((scope, leg)) = self.scopes.get(role).zip(leg) else { continue };
            if self.router.signals_of(role).prefix_index.is_some() {
                index.credit(scope, view, leg.worker);
            }
        }
    }

    /// What the record tells of the decision: the leg that computes the prompt is what the cell's policy chose.
    fn note(&mut self, seq: usize, plan: &Plan) {
        let place = |leg: &Assignment| self.addresses.host(leg.worker) as u32;
        let (worker, prefill) = (place(&plan.decode), plan.prefill.as_ref().map(place));
        let computes = plan.prefill.as_ref().unwrap_or(&plan.decode);
        let record = &mut self.records[seq];
        record.worker = Some(worker);
        record.prefill_worker = prefill;
        record.rank = None;
        record.reason = computes.reason.as_str().to_owned();
        record.predicted_cached_tokens = computes.predicted_cached_tokens;
    }

    /// Sends both legs at once.
    fn send(&mut self, now_ns: u64, seq: usize, attempt: u32, plan: &Plan, prompt: &Prompt) {
        let id = name(seq, attempt);
        let (room, told) = match &plan.prefill {
            Some(prefill) => self.rooms(id, prefill, &plan.decode),
            None => (None, None),
        };
        for leg in plan.prefill.iter().chain([&plan.decode]) {
            let (host, rank) = (self.addresses.host(leg.worker), self.addresses.rank(leg.worker));
            let late_ns = self.dice.leg_late_ns(self.hosts[host].role, id);
            let leg = Leg { id, host, rank, room: told };
            let at_ns = now_ns + self.hop_ns + self.overhead_ns + late_ns;
            self.clock.at(at_ns, Event::Submit(leg, prompt.clone()));
        }
        if let Some(limit_ns) = self.first_byte_ns {
            self.clock.at(now_ns + limit_ns, Event::Silent(id));
        }
        let (prefill, answer) = (plan.prefill.map(Booked::new), Booked::new(plan.decode));
        if let Some(job) = &mut self.jobs[seq] {
            job.sent = Some(Sent { prefill, answer, room });
        }
    }

    /// The room of a pair, and what its workers are told to be it. Only by mistake these differ.
    fn rooms(
        &mut self,
        id: RequestId,
        prefill: &Assignment,
        decode: &Assignment,
    ) -> (Option<u64>, Option<u64>) {
        // Where the engine goes by the room, the room must lead to the rank that was chosen.
        let follows = self.fleet.ranks.of(EngineRole::Prefill).balance == LoadBalance::FollowBootstrapRoom;
        let rank = self.addresses.rank(prefill.worker).filter(|_| follows);
        let room = self.dice.room(rank.map(|rank| (self.fleet.ranks.size, rank)));
        let (prefill, decode) = (self.addresses.host(prefill.worker), self.addresses.host(decode.worker));
        let bad = self.dice.bad_room(id);
        if bad == Some(BadRoom::InUse) {
            let others = self.handovers.range(room..).chain(self.handovers.range(..room));
            let other = others.into_iter().find(|(_, handover)| handover.prefill == prefill);
            if let Some((other, _)) = other {
                // The other request's hand-off goes on under that room.
                return (None, Some(*other));
            }
        }
        self.handovers.insert(room, Handover::new(id, prefill, decode));
        (Some(room), Some(room).filter(|_| bad != Some(BadRoom::Missing)))
    }

    /// Whether somebody could have a request who was not tried.
    pub(super) fn is_anybody_left(&self, now_ns: u64, seq: usize, tried: &[WorkerId]) -> bool {
        let key = self.requests[seq].routing_key();
        let request = self.question(seq, PromptView::Unreadable, key.as_deref(), tried);
        match self.router.propose_plan(now_ns, &request, &PlanMatches::default()) {
            Ok(_) | Err(NoPlan { why: Unroutable::DispatchLimit, .. }) => true,
            Err(_) => false,
        }
    }
}

/// The tokens of a prompt that is made of these.
fn spelled(parts: &[Part]) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(parts.iter().map(|part| part.tokens as usize).sum());
    for Part { block, tokens: count, .. } in parts {
        extend_with_block(&mut tokens, *block, 0..*count);
    }
    tokens
}
