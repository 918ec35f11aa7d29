//! Whether the books agree with themselves; for tests, as it walks through all leases for every account.

use std::collections::BTreeSet;

use super::{Account, Lease, LeaseId, Ledger, Load};

impl Ledger {
    /// Whether every account equals what its leases say, and every lease has its accounts.
    pub(crate) fn check(&self) -> Result<(), String> {
        for account in &self.accounts {
            self.check_account(account).map_err(|why| format!("{:?}: {why}", account.worker))?;
        }
        let sources = self.leases.values().filter_map(|lease| lease.source);
        let mut needed = self.leases.values().map(|lease| lease.worker).chain(sources);
        match needed.find(|worker| self.place(*worker).is_none()) {
            None => Ok(()),
            Some(worker) => Err(format!("{worker:?} has leases and no account")),
        }
    }

    fn check_account(&self, account: &Account) -> Result<(), String> {
        let own = || self.leases.iter().filter(|(_, lease)| lease.worker == account.worker);
        let mut load = Load::default();
        own().for_each(|(_, lease)| load.add(lease.load()));
        agree("load", account.load, load)?;
        let queued: BTreeSet<(u64, LeaseId)> =
            own().filter(|(_, lease)| lease.queued).map(|(id, lease)| (lease.looked, *id)).collect();
        agree("queued", Vec::from_iter(account.computing.iter().copied()), Vec::from_iter(queued))?;
        let goes_on = |lease: &&Lease| lease.source == Some(account.worker);
        agree("derived", account.derived, self.leases.values().filter(goes_on).count() as u64)?;
        match account.breaker {
            Some(breaker) => breaker.check(own().filter_map(|(_, lease)| lease.pass)),
            None => Ok(()),
        }
    }
}

fn agree<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    what: &str,
    account: T,
    leases: U,
) -> Result<(), String> {
    if account == leases { Ok(()) } else { Err(format!("{what} is {account:?}, by its leases {leases:?}")) }
}
