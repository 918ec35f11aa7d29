//! A reverse proxy for SGLang workers.
