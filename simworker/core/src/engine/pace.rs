//! Steps that take longer than they should.

use super::{Engine, Event, Until};

impl Engine {
    /// From the next step on, steps take `factor` times as long as the cost model says: a GPU that is hot, or shared. 1 is
    /// as before; what is not a number above 0 is taken for 1.
    pub fn set_pace_factor(&mut self, now_ns: u64, factor: f64, events: &mut Vec<Event>) {
        self.catch_up(now_ns, Until::Before, events);
        let factor = if factor.is_finite() && factor > 0.0 { factor } else { 1.0 };
        self.cost = self.own_cost.slowed(factor);
    }
}
