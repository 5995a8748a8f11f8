use crate::{
    ModelError, Precision,
    body::EncoderWeights,
    encoder::{BurnEncoder, Composed, Encoder, Form, Placement},
    error::panic_message,
    ragged::{PassLimit, TOKENS_PER_PASS},
};
use burn::tensor::FloatDType;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::Arc,
    thread::available_parallelism,
};

/// Where the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// `cpu`: Burn's Flex backend with the crate's own kernels, without padding.
    Cpu,
    /// `cpu-plain`: Burn's Flex backend with operations composed of its own, as on the devices below. It is slower and
    /// serves to check the kernels.
    CpuPlain,
    /// `ndarray`: Burn's NdArray backend.
    #[cfg(feature = "ndarray")]
    NdArray,
    /// `wgpu`: the first graphics processor, through Vulkan, Metal or DirectX 12.
    #[cfg(feature = "wgpu")]
    Wgpu,
    /// `cuda`: the first NVIDIA processor. The driver and toolkit are looked for when the model is loaded.
    #[cfg(feature = "cuda")]
    Cuda,
}

/// About how many tokens a graphics processor gets at once. With fewer, starting its kernels would take longer than they run; more would gain
/// nothing, and scores and activations already take some hundreds of megabytes there.
const TOKENS_PER_PASS_OF_GRAPHICS: usize = 16_384;

/// The rows of a tile of cubek's accelerated attention: 16 for each of at least two planes.
const ATTENTION_TILE: usize = 32;

/// Devices that are cargo features of the same name.
const FEATURES: [&str; 3] = ["ndarray", "wgpu", "cuda"];

impl Device {
    /// Loads the weights onto the device.
    pub(crate) fn encoder(self, weights: EncoderWeights, precision: Precision) -> Result<Arc<dyn Encoder>, ModelError> {
        let refused = |problem| ModelError::Setting { setting: "precision", value: precision.to_string(), problem };
        let floats = match precision {
            Precision::F32 => FloatDType::F32,
            Precision::Bf16 if self.is_graphics() => FloatDType::BF16,
            _ if self == Self::Cpu => FloatDType::F32,
            Precision::Bf16 => return Err(refused("only the devices cpu, wgpu and cuda have it; take f32")),
            Precision::Int8 => return Err(refused("only the device cpu has it; take f32")),
        };
        // Backends panic if there is no such processor or no driver for it.
        let made = catch_unwind(AssertUnwindSafe(|| -> Option<Arc<dyn Encoder>> {
            let device = self.of_burn();
            let tile = if self.is_graphics() { ATTENTION_TILE } else { 1 };
            let form = match self {
                Self::Cpu => Form::Kernels(precision),
                _ => Form::Composed(Composed { floats, tile }),
            };
            let has_it = self == Self::Cpu || device.supports_dtype(floats);
            has_it.then(|| Arc::new(BurnEncoder::new(weights, Placement { device, form })) as Arc<dyn Encoder>)
        }));
        made.map_err(|panic| ModelError::DeviceFailed { device: self.to_string(), message: panic_message(&*panic) })?
            .ok_or_else(|| refused("the device does not compute in it; take f32"))
    }

    /// Whether it is a processor of its own, so that this machine's is free while a pass runs there.
    pub(crate) fn is_graphics(self) -> bool {
        match self {
            Self::Cpu | Self::CpuPlain => false,
            #[cfg(feature = "ndarray")]
            Self::NdArray => false,
            #[cfg(feature = "wgpu")]
            Self::Wgpu => true,
            #[cfg(feature = "cuda")]
            Self::Cuda => true,
        }
    }

    /// How much it gets at once. Only this crate's kernels do without padding.
    pub(crate) fn pass_limit(self) -> PassLimit {
        let tokens = if self.is_graphics() { TOKENS_PER_PASS_OF_GRAPHICS } else { TOKENS_PER_PASS };
        PassLimit { tokens, pads: self != Self::Cpu }
    }

    fn of_burn(self) -> burn::tensor::Device {
        match self {
            Self::Cpu | Self::CpuPlain => burn::tensor::Device::flex(),
            #[cfg(feature = "ndarray")]
            #[expect(deprecated, reason = "Burn advises Flex, which is the default here; this one is an extra")]
            Self::NdArray => burn::tensor::Device::ndarray(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => burn::tensor::Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            #[cfg(feature = "cuda")]
            Self::Cuda => burn::tensor::Device::cuda(0),
        }
    }

    /// The precision of the weights if nothing else was asked for: bf16 loses next to nothing and takes half the memory.
    pub(crate) fn precision(self, asked: Option<Precision>) -> Precision {
        asked.unwrap_or(if self == Self::Cpu { Precision::Bf16 } else { Precision::F32 })
    }

    /// How many threads run the model if `asked` were asked for; 0 asks for as many as the machine has.
    pub(crate) fn threads(self, asked: usize) -> usize {
        match asked {
            // One thread keeps such a processor busy; a second one would only use memory there.
            _ if self.is_graphics() => 1,
            0 => available_parallelism().map_or(1, usize::from),
            asked => asked,
        }
    }
}

impl FromStr for Device {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "cpu-plain" => Ok(Self::CpuPlain),
            #[cfg(feature = "ndarray")]
            "ndarray" => Ok(Self::NdArray),
            #[cfg(feature = "wgpu")]
            "wgpu" => Ok(Self::Wgpu),
            #[cfg(feature = "cuda")]
            "cuda" => Ok(Self::Cuda),
            _ => Err(match FEATURES.into_iter().find(|&feature| feature == name) {
                Some(feature) => ModelError::DeviceNotBuilt { device: name.to_owned(), feature },
                None => ModelError::DeviceUnknown { device: name.to_owned() },
            }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::CpuPlain => "cpu-plain",
            #[cfg(feature = "ndarray")]
            Self::NdArray => "ndarray",
            #[cfg(feature = "wgpu")]
            Self::Wgpu => "wgpu",
            #[cfg(feature = "cuda")]
            Self::Cuda => "cuda",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_in_is_refused_with_the_feature_s_name() {
        let built = [cfg!(feature = "ndarray"), cfg!(feature = "wgpu"), cfg!(feature = "cuda")];
        for (name, built) in FEATURES.into_iter().zip(built) {
            match name.parse::<Device>() {
                Ok(device) => assert!(built && device.to_string() == name),
                Err(error) => assert!(
                    !built && error.to_string().contains(&format!("build with the feature `{name}`")),
                    "{error}"
                ),
            }
        }
        for name in ["cpu", "cpu-plain"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert!(
            "tpu".parse::<Device>().unwrap_err().to_string().contains("takes cpu, cpu-plain, ndarray, wgpu or cuda")
        );
    }

    #[test]
    fn padding_counts_wherever_operations_are_composed() {
        assert!(!Device::Cpu.pass_limit().pads && Device::CpuPlain.pass_limit().pads);
    }
}
