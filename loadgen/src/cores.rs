//! Jobs that share nothing, on all cores: every core takes the next one from one list.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Does `work` with every job and its place, and gives the results in the order of `jobs`, whichever ends first. Ends at the first
/// error.
///
/// # Errors
/// The first that there was, by the order of `jobs`.
pub(crate) fn on_all_cores<J: Sync, T: Send, E: Send>(
    jobs: &[J],
    work: impl Fn(usize, &J) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let core = || {
        while !stop.load(Ordering::Relaxed) {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(place) else { return };
            let result = work(place, job);
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(core);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_ends_the_work() {
        let done = AtomicUsize::new(0);
        let work = |place: usize, job: &usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if place == 0 { Err(*job) } else { Ok(()) }
        };
        assert_eq!(on_all_cores(&[7], work), Err(7));
        assert_eq!(
            on_all_cores(&[1, 2, 3], |place, job| Ok::<_, ()>((place, *job))),
            Ok(vec![(0, 1), (1, 2), (2, 3)])
        );
        assert_eq!(done.into_inner(), 1);
    }
}
