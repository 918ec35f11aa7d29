//! A mock SGLang worker: its HTTP endpoints over an emulated engine.
