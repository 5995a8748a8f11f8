//! Option groups of registered task types.
use super::{EXTRACT, Options, check_text};
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

    /// The value in the form in which it is stored; the error is what a value of this type is.
    fn read(self, value: &Value) -> Result<Value, &'static str> {
        match self {
            Preset::Flag(_) => value.as_bool().map(Value::from).ok_or("true or false"),
            Preset::Whole(_) => value.as_i64().map(Value::from).ok_or("a whole number"),
            Preset::Number(_) => value.as_f64().map(Value::from).ok_or("a number"),
            Preset::Text(_) => value.as_str().map(Value::from).ok_or("a text"),
        }
    }
}

impl OptionGroup {
    fn defaults(&self) -> Value {
        self.keys.iter().map(|key| (key.name.to_owned(), key.default.value())).collect::<Map<_, _>>().into()
    }

    /// Brings the values of the keys into the form in which they are stored, or refuses them by name.
    pub(in crate::ingest) fn check(&self, values: &mut Value) -> Result<(), Failure> {
        for key in self.keys {
            let name = format!("{}.{}", self.name, key.name);
            let value = &mut values[key.name];
            *value = key.default.read(value).map_err(|takes| Failure::field(&name, format!("takes {takes}")))?;
            if let Some(text) = value.as_str() {
                check_text(&name, text)?;
            }
            key.constraint.map_or(Ok(()), |constraint| constraint.check(&name, value))?;
        }
        Ok(())
    }

    /// Refuses a group that built-in options hold already, or whose own defaults it would refuse.
    pub(in crate::ingest) fn check_declared(&self) -> Result<(), Failure> {
        if self.name == EXTRACT || Options::default().to_value().get(self.name).is_some() {
            return Err(Failure::field(self.name, "is a group of the built-in options"));
        }
        self.check(&mut self.defaults())
    }
}

/// Adds the defaults of registered groups that stored options lack, because the file was stored before the groups were registered.
pub fn complete(stored: &mut Value, registered: &[&OptionGroup]) {
    let Some(stored) = stored.as_object_mut() else { return };
    for group in registered {
        stored.entry(group.name).or_insert_with(|| group.defaults());
    }
}
