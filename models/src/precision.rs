use std::fmt;

/// How the weights of linear layers are stored, which are nearly all of a model. Everything else is f32, including
/// sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits, as published. A processor with AMX multiplies each number as the exact sum of three of bf16, and loses no more digits than others do.
    F32,
    /// 16 bits: half the memory, and a query has half as much to read. A processor with AVX512_BF16 or AMX multiplies them by activations of 16 bits.
    Bf16,
    /// 8 bits: a quarter of the memory. A processor with VNNI multiplies them by activations of 8 bits, with a scale for
    /// each 64 inputs of a row and of an output; others by activations of 16 bits, with a scale for each row and output.
    Int8,
}

impl Precision {
    /// All precisions with their names.
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
