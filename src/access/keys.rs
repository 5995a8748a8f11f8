//! The secrets that open the service.
use super::Caller;
use crate::{
    error::{OrFail, unauthenticated},
    store::api_tokens::{self, Holder},
};
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgPool};
use subtle::ConstantTimeEq;
use svc_client::{Access, Code, Failure};
use svc_ids::ApiTokenId;

/// Each principal's secret begins like this, so that people and scanners of sources recognise one.
const MARK: &str = "svc_";
/// The random bytes of a secret, which stand in it as hexadecimal digits.
const RANDOM_BYTES: usize = 32;
/// How many characters of a secret are shown to recognise it by.
const PREFIX: usize = MARK.len() + 8;

/// A principal's secret, at the only time when it is known.
pub struct NewSecret {
    /// What the principal sends.
    pub text: String,
    /// What is stored of it.
    pub hash: [u8; 32],
}

impl NewSecret {
    /// Draws a secret.
    pub fn draw() -> NewSecret {
        let bytes: [u8; RANDOM_BYTES] = rand::random();
        let text = format!("{MARK}{}", hex::encode(bytes));
        NewSecret { hash: digest(&text), text }
    }

    /// The beginning, which may be shown.
    pub fn prefix(&self) -> &str {
        &self.text[..PREFIX]
    }
}

/// What a request shows of its caller.
pub enum Shown {
    /// The caller is known by a key of the service.
    Known(Caller),
    /// The SHA-256 of a secret that may be a principal's.
    Secret([u8; 32]),
}

/// The keys of the service, as digests. Comparing digests takes the same time whatever is sent.
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

    /// Finds out who calls, without the database; 401 if the operation demands more than the call shows.
    pub fn recognise(&self, access: Access, headers: &HeaderMap) -> Result<Shown, Failure> {
        let bearer = || {
            let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        };
        let shown = bearer().map(|token| (token, digest(token)));
        let holds = |key: &[u8; 32]| shown.is_some_and(|(_, shown)| bool::from(shown.ct_eq(key)));
        match access {
            // A public operation may tell the owner more.
            Access::Public if holds(&self.owner) => Ok(Shown::Known(Caller::Owner)),
            Access::Public => Ok(Shown::Known(Caller::Nobody)),
            Access::Metrics if self.metrics_are_public => Ok(Shown::Known(Caller::Nobody)),
            Access::Read | Access::Write | Access::Owner | Access::Metrics if holds(&self.owner) => {
                Ok(Shown::Known(Caller::Owner))
            }
            Access::RunnerKey => match &self.runner {
                None => Err(Failure::new(Code::NotConfigured, "this service is not a runner, because it has no key")
                    .with("setting", "SVC_RUNNER_KEY")),
                Some(key) if holds(key) => Ok(Shown::Known(Caller::Nobody)),
                Some(_) => Err(Failure::new(
                    Code::Unauthenticated,
                    "send `Authorization: Bearer <key>` with the SVC_RUNNER_KEY of this service",
                )),
            },
            Access::Read | Access::Write | Access::Owner => match shown {
                // What is no secret of ours is refused without the database.
                Some((token, hash)) if has_form(token) => Ok(Shown::Secret(hash)),
                _ => Err(unauthenticated()),
            },
            Access::Metrics => Err(unauthenticated()),
        }
    }

    /// What tells whether a session that the owner's token opened is still the owner's. The token does not follow from it.
    pub fn owner_mark(&self) -> [u8; 32] {
        Sha256::digest([b"console session of ".as_slice(), &self.owner].concat()).into()
    }

    /// Finds out who calls, and what it may do; 401 as [`Keys::recognise`] says, and for a secret that opens nothing.
    pub async fn authenticate(&self, pool: &PgPool, access: Access, headers: &HeaderMap) -> Result<Caller, Failure> {
        match self.recognise(access, headers)? {
            Shown::Known(caller) => Ok(caller),
            Shown::Secret(hash) => {
                let mut conn = pool.acquire().await.or_fail()?;
                let holder = api_tokens::holder(&mut conn, &hash).await.or_fail()?.ok_or_else(unauthenticated)?;
                if let Some(token_id) = holder.token_id.filter(|_| holder.is_use_due)
                    && let Err(error) = api_tokens::record_use(&mut conn, token_id).await
                {
                    tracing::warn!(%error, token = token_id.0, "the use of a token could not be recorded");
                }
                Ok(Caller::from(holder))
            }
        }
    }
}

impl Caller {
    /// The principal that holds this token, with the rights that it has now; `None` if the token has ended.
    pub async fn of_token(pool: &PgPool, token_id: ApiTokenId) -> Result<Option<Caller>, Failure> {
        let mut conn = pool.acquire().await.or_fail()?;
        let holder = api_tokens::holder_again(&mut conn, token_id).await.or_fail()?;
        Ok(holder.map(Caller::from))
    }

    /// The principal that answers for a message of the broker: for one of a known user that user's service, for one without a user the
    /// principal of this name. `None` if there is no such principal, or it is disabled.
    pub async fn of_message(pool: &PgPool, user: Option<&str>, name: &str) -> Result<Option<Caller>, Failure> {
        let mut conn = pool.acquire().await.or_fail()?;
        let holder = match user {
            Some(user) => api_tokens::by_amqp_user(&mut conn, user).await,
            None if name.is_empty() => return Ok(None),
            None => api_tokens::by_name(&mut conn, name).await,
        };
        Ok(holder.or_fail()?.map(Caller::from))
    }

    /// The same caller with the rights that it has now; 401 if its token has ended. Long-lived streams call this
    /// repeatedly.
    pub async fn again(&self, pool: &PgPool) -> Result<Caller, Failure> {
        match self {
            Caller::Principal(_) => self.again_on(&mut *pool.acquire().await.or_fail()?).await,
            Caller::Owner | Caller::Nobody => Ok(self.clone()),
        }
    }

    /// Does the same as [`Caller::again`] within a transaction, which sees what others committed before its locks.
    pub async fn again_on(&self, conn: &mut PgConnection) -> Result<Caller, Failure> {
        match self {
            Caller::Principal(principal) => {
                let holder = match principal.token_id {
                    Some(token_id) => api_tokens::holder_again(conn, token_id).await,
                    None => api_tokens::by_id(conn, principal.id).await,
                };
                holder.or_fail()?.map(Caller::from).ok_or_else(unauthenticated)
            }
            Caller::Owner | Caller::Nobody => Ok(self.clone()),
        }
    }
}

impl From<Holder> for Caller {
    fn from(holder: Holder) -> Caller {
        Caller::Principal(super::Principal {
            id: holder.principal_id,
            name: holder.name,
            token_id: holder.token_id,
            read: holder.read,
            write: holder.write,
        })
    }
}

fn has_form(token: &str) -> bool {
    let digits = token.strip_prefix(MARK).unwrap_or_default();
    digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        let opens = |access, value: &str| keys.recognise(access, &headers(value)).is_ok();
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
        assert!(keys.recognise(Access::Read, &HeaderMap::new()).is_err());
        let closed = Keys::new("owner", None, true);
        for value in ["Bearer ", "Bearer owner", ""] {
            let refused = closed.recognise(Access::RunnerKey, &headers(value)).err().expect("closed");
            assert_eq!((refused.code, &refused.members["setting"]), (Code::NotConfigured, &"SVC_RUNNER_KEY".into()));
        }
        assert!(closed.recognise(Access::Metrics, &HeaderMap::new()).is_ok());
    }

    #[test]
    fn only_what_has_the_form_of_a_secret_is_looked_up() {
        let (keys, secret) = (Keys::new("owner", None, false), NewSecret::draw());
        let looked_up = |access, token: &str| match keys.recognise(access, &headers(&format!("Bearer {token}"))) {
            Ok(Shown::Secret(hash)) => Some(hash),
            _ => None,
        };
        for access in [Access::Read, Access::Write, Access::Owner] {
            assert_eq!(looked_up(access, &secret.text), Some(secret.hash));
        }
        for access in [Access::Public, Access::Metrics, Access::RunnerKey] {
            assert_eq!(looked_up(access, &secret.text), None, "{access:?} asks the database");
        }
        let (short, long) = (&secret.text[..secret.text.len() - 1], format!("{}0", secret.text));
        for other in [short, &long, &secret.text.replace("svc_", "svc-"), &format!("svc_{}", "g".repeat(64)), "owner"] {
            assert_eq!(looked_up(Access::Read, other), None, "{other}");
        }
        assert_eq!(secret.prefix(), &secret.text[..12]);
        assert_ne!(NewSecret::draw().text, secret.text);
    }
}
