//! What a setting takes. Each kind reads and writes one text form, which file, environment and default share.

use super::{AllowedTarget, BlobStore};
use oxrdf::NamedNode;
use std::{collections::BTreeMap, fmt, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

/// A text that is never printed: its `Debug` form is masked.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one place that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether nothing is set.
    pub fn is_blank(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

/// The same eight stars for every secret, so that not even its length shows.
pub(super) fn mask(text: &str) -> String {
    if text.is_empty() { String::new() } else { "********".to_owned() }
}

/// An address with its password masked; an address that hides a password elsewhere is masked entirely.
pub(super) fn mask_password(address: &str) -> String {
    if address.to_ascii_lowercase().contains("password=") {
        return mask(address);
    }
    let Some((scheme, rest)) = address.split_once("://") else { return mask(address) };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // An unescaped `/` in a password would end the authority early, and the rest would be printed.
    if rest[authority_end..].contains('@') {
        return mask(address);
    }
    match rest[..authority_end].rsplit_once('@') {
        None => address.to_owned(),
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user.to_owned(), |(name, _)| format!("{name}:********"));
            format!("{scheme}://{user}@{host}{}", &rest[authority_end..])
        }
    }
}

type Read<T> = Box<dyn Fn(&str) -> Option<T>>;
type Write<T> = Box<dyn Fn(&T) -> String>;

/// How the values of one setting are read and written.
pub(super) struct Kind<T> {
    /// Completes "takes ...".
    pub takes: String,
    /// Whether the text form is valid in TOML without quotes.
    pub bare: bool,
    /// Whether a blank text is a value; otherwise a blank environment variable counts as unset.
    pub blank: bool,
    pub secret: bool,
    read: Read<T>,
    write: Write<T>,
}

impl<T: 'static> Kind<T> {
    fn new(
        takes: impl Into<String>,
        read: impl Fn(&str) -> Option<T> + 'static,
        write: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self {
            takes: takes.into(),
            bare: false,
            blank: false,
            secret: false,
            read: Box::new(read),
            write: Box::new(write),
        }
    }

    fn bare(self) -> Self {
        Self { bare: true, ..self }
    }

    pub fn read(&self, text: &str) -> Option<T> {
        (self.read)(text.trim())
    }

    pub fn write(&self, value: &T) -> String {
        (self.write)(value)
    }
}

pub(super) fn text() -> Kind<String> {
    Kind { blank: true, ..Kind::new("a text", |text| Some(text.to_owned()), String::clone) }
}

pub(super) fn required_text() -> Kind<String> {
    Kind::new("a text that is not blank", |text| (!text.is_empty()).then(|| text.to_owned()), String::clone)
}

/// What IRIs begin with.
pub(super) fn iri_base() -> Kind<String> {
    let is_whole = |text: &str| text.ends_with(['/', '#', ':']) && NamedNode::new(format!("{text}document/1")).is_ok();
    let read = move |text: &str| (text.len() <= 1_000 && is_whole(text)).then(|| text.to_owned());
    Kind::new("an absolute IRI that ends with / or # or :", read, String::clone)
}

/// What names at a message broker begin with.
pub(super) fn broker_name() -> Kind<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let read = move |text: &str| ((1..=100).contains(&text.len()) && text.chars().all(fits)).then(|| text.to_owned());
    Kind::new("1 to 100 letters, digits and the signs . _ -", read, String::clone)
}

pub(super) fn secret() -> Kind<Secret> {
    let read = |text: &str| Some(Secret(text.to_owned()));
    Kind { blank: true, secret: true, ..Kind::new("a secret text", read, |secret| mask(&secret.0)) }
}

/// An address such as `postgres://user:password@host/name`, shown without its password.
pub(super) fn secret_address(schemes: &'static [&'static str]) -> Kind<Secret> {
    let fits = |text: &str| schemes.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| rest.len() > 3));
    let read = move |text: &str| (text.is_empty() || fits(text)).then(|| Secret(text.to_owned()));
    let takes = format!("blank, or an address that begins with {}", schemes.join(":// or ") + "://");
    Kind { blank: true, secret: true, ..Kind::new(takes, read, |secret| mask_password(&secret.0)) }
}

/// Several of these addresses with commas between them, each shown without its password.
pub(super) fn secret_addresses(schemes: &'static [&'static str]) -> Kind<Vec<Secret>> {
    let one = secret_address(schemes);
    let read = move |text: &str| {
        let addresses = text.split(',').map(str::trim).filter(|address| !address.is_empty());
        addresses.map(|address| one.read(address)).collect()
    };
    let write = |addresses: &Vec<Secret>| {
        addresses.iter().map(|address| mask_password(&address.0)).collect::<Vec<_>>().join(",")
    };
    let takes = format!("blank, or addresses that begin with {}://, with commas between them", schemes.join(":// or "));
    Kind { blank: true, secret: true, ..Kind::new(takes, read, write) }
}

pub(super) fn web_address() -> Kind<String> {
    let fits = |text: &str| {
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        text.is_empty() || host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
    };
    let read = move |text: &str| fits(text).then(|| text.trim_end_matches('/').to_owned());
    Kind { blank: true, ..Kind::new("blank, or an address that begins with http:// or https://", read, String::clone) }
}

/// An object store. What is refused is not shown, because somebody may have put a key into it.
pub(super) fn blob_store() -> Kind<Option<BlobStore>> {
    let takes =
        "s3://bucket, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder, without keys";
    let kind = Kind { secret: true, ..Kind::new(takes, BlobStore::parse, BlobStore::to_string) };
    optional(kind)
}

/// A folder; blank means a place that the service works out itself.
pub(super) fn folder() -> Kind<PathBuf> {
    let kind = Kind::new(
        "the path of a folder",
        |text| Some(PathBuf::from(text)),
        |path: &PathBuf| path.display().to_string(),
    );
    Kind { blank: true, ..kind }
}

pub(super) fn listener() -> Kind<SocketAddr> {
    Kind::new(
        "an IP address and a port, such as 127.0.0.1:8000 or [::1]:8000",
        |text| text.parse().ok(),
        SocketAddr::to_string,
    )
}

pub(super) fn flag() -> Kind<bool> {
    let read = |text: &str| match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    };
    Kind::new("true or false", read, bool::to_string).bare()
}

pub(super) fn integer(range: RangeInclusive<usize>) -> Kind<usize> {
    let takes = format!("a whole number from {} to {}", range.start(), range.end());
    Kind::new(takes, move |text| text.parse().ok().filter(|n| range.contains(n)), usize::to_string).bare()
}

pub(super) fn number(range: RangeInclusive<f64>) -> Kind<f64> {
    let takes = format!("a number from {} to {}", range.start(), range.end());
    // NaN is in no range.
    Kind::new(takes, move |text| text.parse().ok().filter(|n| range.contains(n)), |n| format!("{n:?}")).bare()
}

/// A share of a whole: above 0 and at most 1.
pub(super) fn fraction() -> Kind<f64> {
    let read = |text: &str| text.parse().ok().filter(|n: &f64| *n > 0.0 && *n <= 1.0);
    Kind::new("a number above 0 and at most 1", read, |n| format!("{n:?}")).bare()
}

/// A duration in seconds, with fractions.
pub(super) fn seconds(range: RangeInclusive<f64>) -> Kind<Duration> {
    let takes = format!("seconds, a number from {} to {}", range.start(), range.end());
    let read = move |text: &str| {
        let seconds: f64 = text.parse().ok().filter(|n| range.contains(n))?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    Kind::new(takes, read, |time| format!("{:?}", time.as_secs_f64())).bare()
}

/// Durations in seconds, each longer than the one before, as a JSON list or separated by commas.
pub(super) fn growing_seconds(most: usize, range: RangeInclusive<f64>) -> Kind<Vec<Duration>> {
    let takes = format!(
        "a list of 1 to {most} growing numbers of seconds from {} to {}, such as [5, 60, 600]",
        range.start(),
        range.end()
    );
    let read = move |text: &str| {
        let text = text.trim_start_matches('[').trim_end_matches(']');
        let numbers: Vec<f64> = text.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().ok()?;
        let fits = (1..=most).contains(&numbers.len())
            && numbers.iter().all(|n| range.contains(n))
            && numbers.windows(2).all(|two| two[0] < two[1]);
        fits.then(|| numbers.iter().filter_map(|n| Duration::try_from_secs_f64(*n).ok()).collect())
    };
    let write = |times: &Vec<Duration>| format!("{:?}", times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>());
    Kind::new(takes, read, write).bare()
}

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A number of bytes, with or without a unit.
pub(super) fn bytes(range: RangeInclusive<u64>) -> Kind<u64> {
    let read = move |text: &str| {
        let unit = UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
        let (count, size) = unit.unwrap_or((text, 1));
        let bytes = count.trim_end().parse::<u64>().ok()?.checked_mul(size)?;
        range.contains(&bytes).then_some(bytes)
    };
    let takes = "bytes, such as 1048576, 64 KiB, 256 MiB or 2 GiB";
    Kind::new(takes, read, |bytes| write_bytes(*bytes))
}

fn write_bytes(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or(bytes.to_string(), |(unit, size)| format!("{} {unit}", bytes / size))
}

/// One of a fixed set of words.
pub(super) fn choice<T: Copy + PartialEq + 'static>(words: &'static [(&'static str, T)]) -> Kind<T> {
    let list: Vec<_> = words.iter().map(|(word, _)| if word.is_empty() { "blank" } else { word }).collect();
    let word = |value: &T| words.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word);
    let read = |text: &str| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, value)| *value);
    let blank = words.iter().any(|(word, _)| word.is_empty());
    Kind { blank, ..Kind::new(list.join(" or "), read, move |value| word(value).to_owned()) }
}

/// Blank, or a value of the inner kind.
pub(super) fn optional<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let takes = format!("blank, or {}", kind.takes);
    let Kind { secret, read, write, .. } = kind;
    let read = move |text: &str| if text.is_empty() { Some(None) } else { read(text).map(Some) };
    let kind = Kind::new(takes, read, move |value: &Option<T>| value.as_ref().map_or(String::new(), &write));
    Kind { blank: true, secret, ..kind }
}

/// Words as a JSON list, or separated by commas.
pub(super) fn words() -> Kind<Vec<String>> {
    let read = |text: &str| {
        if text.starts_with('[') {
            return serde_json::from_str(text).ok();
        }
        let words = text.split(',').map(str::trim);
        Some(words.filter(|word| !word.is_empty()).map(str::to_owned).collect())
    };
    let write = |words: &Vec<String>| serde_json::to_string(words).unwrap_or_default();
    let takes = r#"a list of words, such as ["one", "two"] or one,two"#;
    Kind { blank: true, ..Kind::new(takes, read, write).bare() }
}

/// Origins of web pages: scheme, host and port, and nothing more.
pub(super) fn origins() -> Kind<Vec<String>> {
    let list = words();
    let is_origin = |text: &String| {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', '?', '#', '@', ' ']))
    };
    let read = move |text: &str| list.read(text).filter(|origins| origins.iter().all(is_origin));
    let write = |origins: &Vec<String>| serde_json::to_string(origins).unwrap_or_default();
    let takes = r#"a list of origins, such as ["https://app.example.org"]; * is refused, name each origin"#;
    Kind { blank: true, ..Kind::new(takes, read, write).bare() }
}

/// Addresses that may be called although they are not public.
pub(super) fn targets() -> Kind<Vec<AllowedTarget>> {
    let list = words();
    let read = move |text: &str| list.read(text)?.iter().map(|target| AllowedTarget::parse(target)).collect();
    let write = |targets: &Vec<AllowedTarget>| {
        let targets: Vec<_> = targets.iter().map(AllowedTarget::to_string).collect();
        serde_json::to_string(&targets).unwrap_or_default()
    };
    let takes = r#"a list of host:port, IP addresses and networks, such as ["wiki.internal:8080", "10.1.0.0/16"]"#;
    Kind { blank: true, ..Kind::new(takes, read, write).bare() }
}

/// Numbers of a fixed set, each at most once, as a JSON list or separated by commas. Only brackets show that none is meant.
pub(super) fn some_of(set: &'static [usize]) -> Kind<Vec<usize>> {
    let read = |text: &str| {
        let within = text.trim_start_matches('[').trim_end_matches(']').trim();
        if within.is_empty() {
            return (!text.is_empty()).then(Vec::new);
        }
        let mut numbers: Vec<usize> = within.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().ok()?;
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        (numbers.len() == count && numbers.iter().all(|n| set.contains(n))).then_some(numbers)
    };
    let set: Vec<_> = set.iter().map(usize::to_string).collect();
    let takes = format!("a list of any of {}, or [] for none", set.join(", "));
    Kind::new(takes, read, |numbers| format!("{numbers:?}")).bare()
}

/// A JSON object whose values are texts that say something.
pub(super) fn text_map() -> Kind<BTreeMap<String, String>> {
    let read = |text: &str| {
        let map: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        map.values().all(|value| !value.trim().is_empty()).then_some(map)
    };
    let write = |map: &BTreeMap<String, String>| serde_json::to_string(map).unwrap_or_default();
    Kind::new(r#"a JSON object without blank values, such as {"summarize:llm": "llm"}"#, read, write).bare()
}
