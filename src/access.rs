//! Who calls, and what they may read.
use crate::store::scope::Scope;
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use svc_client::{Access, Code, Failure};

/// The maker of a call.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Has the owner token, which passes every access check.
    Owner,
    /// Has the runner key, or calls something public; reads no document.
    Nobody,
}

impl Caller {
    /// What this caller may read.
    pub fn scope(&self) -> Scope {
        match self {
            Caller::Owner => Scope::everything(),
            Caller::Nobody => Scope::default(),
        }
    }
}

/// The secrets that open the service, as digests. Comparing digests takes the same time whatever is sent.
pub struct Keys {
    owner: [u8; 32],
    runner: Option<[u8; 32]>,
    metrics_are_public: bool,
}

impl Keys {
    /// Makes the keys. `runner` is `None` if SVC_RUNNER_KEY is not set, and then nobody may call the runner.
    pub fn new(owner: &str, runner: Option<&str>, metrics_are_public: bool) -> Keys {
        Keys { owner: digest(owner), runner: runner.map(digest), metrics_are_public }
    }

    /// Finds out who calls; 401 if the operation demands more than the call shows.
    pub fn authenticate(&self, access: Access, headers: &HeaderMap) -> Result<Caller, Failure> {
        let bearer = || {
            let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| digest(token.trim()))
        };
        let holds = |key: &[u8; 32]| bearer().is_some_and(|shown| bool::from(shown.ct_eq(key)));
        match access {
            // A public operation may tell the owner more.
            Access::Public if holds(&self.owner) => Ok(Caller::Owner),
            Access::Public => Ok(Caller::Nobody),
            Access::Metrics if self.metrics_are_public => Ok(Caller::Nobody),
            Access::Read | Access::Write | Access::Owner | Access::Metrics if holds(&self.owner) => Ok(Caller::Owner),
            Access::RunnerKey => match &self.runner {
                None => Err(Failure::new(Code::NotConfigured, "this service is not a runner, because it has no key")
                    .with("setting", "SVC_RUNNER_KEY")),
                Some(key) if holds(key) => Ok(Caller::Nobody),
                Some(_) => Err(Failure::new(
                    Code::Unauthenticated,
                    "send `Authorization: Bearer <key>` with the SVC_RUNNER_KEY of this service",
                )),
            },
            _ => Err(Failure::new(Code::Unauthenticated, "send `Authorization: Bearer <token>` with a valid token")),
        }
    }
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().expect("a header value"))])
    }

    #[test]
    fn only_the_right_secret_opens_and_each_only_its_own_door() {
        let keys = Keys::new("owner", Some("runner"), false);
        let opens = |access, value: &str| keys.authenticate(access, &headers(value)).is_ok();
        assert!(
            opens(Access::Read, "Bearer owner")
                && opens(Access::Read, "bearer  owner")
                && opens(Access::Metrics, "Bearer owner")
        );
        assert!(opens(Access::RunnerKey, "Bearer runner") && opens(Access::Public, "nonsense"));
        for wrong in ["Bearer", "Bearer ", "Bearer owner2", "Bearer runner", "Basic owner", "owner", ""] {
            assert!(!opens(Access::Read, wrong), "{wrong:?} opened");
        }
        assert!(!opens(Access::RunnerKey, "Bearer owner") && !opens(Access::Metrics, "Bearer runner"));
        assert!(keys.authenticate(Access::Read, &HeaderMap::new()).is_err());
        let closed = Keys::new("owner", None, true);
        for value in ["Bearer ", "Bearer owner", ""] {
            let refused = closed.authenticate(Access::RunnerKey, &headers(value)).expect_err("closed");
            assert_eq!((refused.code, &refused.members["setting"]), (Code::NotConfigured, &"SVC_RUNNER_KEY".into()));
        }
        assert!(closed.authenticate(Access::Metrics, &HeaderMap::new()).is_ok());
    }
}
