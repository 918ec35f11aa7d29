//! Who may use which route.

use http::{HeaderMap, Method};

use crate::api_key::AdminRole;
use crate::config::Settings;
use crate::error::Refusal;

/// What a route asks of those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing.
    Public,
    /// The key of clients, where there is one.
    Data,
    /// The key of an operator; where there are no such keys, that of clients. To change something an operator must have
    /// the role for it.
    Admin,
}

/// Who asks, by the key that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Visitor {
    /// Nobody needs a key here.
    Anyone,
    /// The holder of the clients' key.
    Client,
    Operator {
        id: String,
        name: String,
        role: AdminRole,
    },
}

/// Whether a request with this method changes something.
pub(super) fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Who asks.
///
/// # Errors
/// [`Refusal::Unauthorized`] without the right key.
pub(crate) fn identify(settings: &Settings, guard: Guard, headers: &HeaderMap) -> Result<Visitor, Refusal> {
    match guard {
        Guard::Public => Ok(Visitor::Anyone),
        Guard::Admin if !settings.admin_keys.is_empty() => {
            let key = settings.admin_keys.find(headers).ok_or(Refusal::Unauthorized)?;
            Ok(Visitor::Operator { id: key.id.clone(), name: key.name.clone(), role: key.role })
        }
        Guard::Data | Guard::Admin => match &settings.api_key {
            None => Ok(Visitor::Anyone),
            Some(key) if key.admits(headers) => Ok(Visitor::Client),
            Some(_) => Err(Refusal::Unauthorized),
        },
    }
}

impl Visitor {
    /// Whether one who was identified may do this.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] if not.
    pub(crate) fn may(&self, method: &Method) -> Result<(), Refusal> {
        match self {
            Self::Operator { role: AdminRole::User, .. } if changes(method) => Err(Refusal::Forbidden),
            _ => Ok(()),
        }
    }
}
