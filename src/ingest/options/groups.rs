//! Option groups of registered task types.
use super::{EXTRACT, Options, checked};
use serde_json::{Map, Value};
use svc_client::{Failure, constraint::Constraint};

/// The parameters of a registered task type, as a group of the options.
#[derive(Debug)]
pub struct OptionGroup {
    pub name: &'static str,
    pub keys: &'static [OptionKey],
}

/// One parameter of a group.
#[derive(Debug)]
pub struct OptionKey {
    pub name: &'static str,
    /// Its type is the type that the key takes.
    pub default: Preset,
    /// What the key takes beyond its type.
    pub constraint: Option<Constraint>,
}

/// The default of a parameter.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(&'static str),
}

impl Preset {
    fn value(self) -> Value {
        match self {
            Preset::Flag(flag) => flag.into(),
            Preset::Whole(number) => number.into(),
            Preset::Number(number) => number.into(),
            Preset::Text(text) => text.into(),
        }
    }
}

impl OptionGroup {
    fn defaults(&self) -> Value {
        self.keys.iter().map(|key| (key.name.to_owned(), key.default.value())).collect::<Map<_, _>>().into()
    }

    /// Refuses a group that built-in options hold already, or whose own defaults it would refuse.
    pub(in crate::ingest) fn check_declared(&self) -> Result<(), Failure> {
        if self.name == EXTRACT || Options::default().to_value().get(self.name).is_some() {
            return Err(Failure::field(self.name, "is a group of the built-in options"));
        }
        self.keys.iter().try_for_each(|key| {
            let (name, default) = (format!("{}.{}", self.name, key.name), key.default.value());
            checked(&name, &default, key.constraint, &default).map(|_| ())
        })
    }
}

/// Adds the defaults of registered groups that stored options lack, because the file was stored before the groups were registered.
pub fn complete(stored: &mut Value, registered: &[&OptionGroup]) {
    let Some(stored) = stored.as_object_mut() else { return };
    for group in registered {
        stored.entry(group.name).or_insert_with(|| group.defaults());
    }
}
