use std::fmt;

/// How the weights of linear layers are kept, nearly all of a model. All else is f32, and so are sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As they are.
    #[default]
    F32,
    /// 16 bits: half the memory, and half of what a query has to read.
    Bf16,
    /// 8 bits, each output with a scale of its own, times activations of up to 16 bits: a quarter of the memory. The sums
    /// of these products are exact.
    Int8,
}

impl Precision {
    /// All, with their names.
    pub const NAMES: [(&'static str, Self); 3] = [("f32", Self::F32), ("bf16", Self::Bf16), ("int8", Self::Int8)];
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        })
    }
}
