//! Pure emulation of one SGLang data-parallel rank: radix cache, KV pool, scheduler, cost model.
