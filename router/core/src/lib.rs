//! Pure routing decisions: policies, prefix index, ledger.
