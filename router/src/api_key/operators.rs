//! The keys of operators: who each is, and what it may do.

use std::fmt;

use http::HeaderMap;
use sha2::{Digest as _, Sha256};

use super::{ApiKey, same, shown};

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdminRole {
    /// Look, and change things.
    Admin,
    /// Look.
    User,
}

/// One operator's key. The key itself is not kept, only its digest.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AdminKey {
    /// Given once.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) role: AdminRole,
    digest: [u8; 32],
}

/// The operators' keys; none: there are no operators of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AdminKeys(Vec<AdminKey>);

impl AdminKeys {
    /// Reads keys of the form `ID:NAME:ROLE:KEY`. The key may have colons in it.
    ///
    /// # Errors
    /// Which one is wrong, by its number, and how. Nothing of its text is told: whoever mixed up the order would see the
    /// key in the log.
    pub(crate) fn parse(given: &[String]) -> Result<Self, String> {
        let mut keys: Vec<AdminKey> = Vec::with_capacity(given.len());
        for (place, text) in given.iter().enumerate() {
            let wrong = |problem: &str| format!("key {} {problem}", place + 1);
            let key = AdminKey::parse(text).map_err(wrong)?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(wrong("has the id of one before it"));
            }
            // Whoever shows it would be two.
            if keys.iter().any(|known| known.digest == key.digest) {
                return Err(wrong("is the same as one before it"));
            }
            keys.push(key);
        }
        Ok(Self(keys))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose key the request shows as `Authorization: Bearer KEY`. It takes as long for every key of a length.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<&AdminKey> {
        let digest: [u8; 32] = Sha256::digest(shown(headers)?).into();
        let mut found = None;
        for key in &self.0 {
            if same(&digest, &key.digest) {
                found = Some(key);
            }
        }
        found
    }
}

impl AdminKey {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.splitn(4, ':');
        let (Some(id), Some(name), Some(role), Some(key)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err("is not of the form ID:NAME:ROLE:KEY; blanks stand between keys, and within none");
        };
        let role = match role {
            "admin" => AdminRole::Admin,
            "user" => AdminRole::User,
            _ => return Err("has a role that is neither admin nor user; the form is ID:NAME:ROLE:KEY"),
        };
        if id.is_empty() {
            return Err("has no id; the form is ID:NAME:ROLE:KEY");
        }
        if name.is_empty() {
            return Err("has no name; the form is ID:NAME:ROLE:KEY");
        }
        if key.split(',').skip(1).any(begins_a_key) {
            return Err("has another one behind a comma; write blanks between keys");
        }
        // What no request can show would lock its operator out.
        let ApiKey(key) = ApiKey::new(key).ok_or("ends in no key of visible ASCII characters")?;
        Ok(Self { id: id.to_owned(), name: name.to_owned(), role, digest: Sha256::digest(key).into() })
    }
}

/// Whether a text has the form of a whole key. A key with a comma in it hardly goes on like this.
fn begins_a_key(text: &str) -> bool {
    let mut parts = text.split(':').skip(2);
    matches!((parts.next(), parts.next()), (Some("admin" | "user"), Some(_)))
}

impl AdminRole {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
        }
    }
}

// The digest of a short key is as good as the key.
impl fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:…", self.id, self.name, self.role.label())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    fn keys(given: &[&str]) -> Result<AdminKeys, String> {
        AdminKeys::parse(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn showing(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))])
    }

    #[test]
    fn a_key_is_found_with_who_shows_it() {
        let keys =
            keys(&["1:Ada Lovelace:admin:sk-a", "2:Bob:user:sk:b:c", "3:Eve:user:sk,d:e,f"]).expect("keys");
        let who = |value: &str| {
            keys.find(&showing(value)).map(|key| (key.id.as_str(), key.name.as_str(), key.role))
        };
        assert_eq!(who("Bearer sk-a"), Some(("1", "Ada Lovelace", AdminRole::Admin)));
        assert_eq!(who("bearer sk:b:c"), Some(("2", "Bob", AdminRole::User)));
        assert_eq!(who("Bearer sk,d:e,f"), Some(("3", "Eve", AdminRole::User)));
        for value in ["Bearer sk-b", "Bearer sk-", "Bearer sk-aa", "Bearer", "sk-a", "Basic sk-a", "Bearer 1"]
        {
            assert_eq!(who(value), None, "{value}");
        }
        assert_eq!(keys.find(&HeaderMap::new()), None);
        assert_eq!(AdminKeys::default().find(&showing("Bearer sk-a")), None);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_text() {
        for (given, told) in [
            (&["sk-secret"][..], "key 1 is not of the form ID:NAME:ROLE:KEY"),
            (&["a:b:sk-secret"], "key 1 is not of the form"),
            (&["a:b:admin:sk-1", "sk-secret:b:c:d"], "key 2 has a role that is neither"),
            (&["a:b:Admin:sk-secret"], "a role that is neither"),
            (&[":b:admin:sk-secret"], "has no id"),
            (&["a::admin:sk-secret"], "has no name"),
            (&["a:b:admin:sk-secret,c:d:user:sk-2"], "key 1 has another one behind a comma"),
            (
                &["a:b", "c:admin:sk-secret"],
                "key 1 is not of the form ID:NAME:ROLE:KEY; blanks stand between",
            ),
            (&["a:b:admin:"], "no key of visible ASCII"),
            (&["a:b:admin:sk-secret 1"], "no key of visible ASCII"),
            (&["a:b:admin:sk-secret", "a:c:user:sk-2"], "key 2 has the id of one before it"),
            (&["a:b:admin:sk-secret", "c:d:user:sk-secret"], "key 2 is the same as one before it"),
        ] {
            let problem = keys(given).expect_err(told);
            assert!(problem.contains(told), "{problem}");
            assert!(!problem.contains("secret"), "{problem}");
        }
        assert!(keys(&[]).expect("none").is_empty());
    }

    #[test]
    fn neither_key_nor_digest_is_shown() {
        let keys = keys(&["1:ada:admin:sk-secret"]).expect("a key");
        assert_eq!(format!("{keys:?}"), "AdminKeys([1:ada:admin:…])");
    }
}
