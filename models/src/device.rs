use std::{fmt, str::FromStr};

use crate::ModelError;

/// Where the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// `cpu`: Burn's Flex backend without padding, own kernels between its matrix products.
    Cpu,
    /// `cpu-plain`: the same backend through Burn's public tensor API alone. Slower; for checking the other by.
    CpuPlain,
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        let not_built = |feature| Err(ModelError::DeviceNotBuilt { device: name.to_owned(), feature });
        match name {
            "cpu" => Ok(Self::Cpu),
            "cpu-plain" => Ok(Self::CpuPlain),
            "ndarray" => not_built("ndarray"),
            "wgpu" => not_built("wgpu"),
            "cuda" => not_built("cuda"),
            _ => Err(ModelError::DeviceUnknown { device: name.to_owned() }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::CpuPlain => "cpu-plain",
        })
    }
}
