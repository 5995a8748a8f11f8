//! A model's weights on their way from the disk: from the published file, or from a pack of it.

use crate::ModelError;
use burn::tensor::{AllocationProperty, Bytes as TensorBytes, DType, TensorData};
use bytes::Bytes;
use std::ops::Deref;

mod mapped;
mod pack;
mod stored;

pub(crate) use pack::Packs;
use pack::{Pack, Recorded};
pub(crate) use stored::StoredTensors;

/// A linear layer with its weight `[inputs, outputs]`.
pub(crate) struct Linear {
    pub weight: Floats,
    pub bias: Option<Vec<f32>>,
    pub inputs: usize,
    pub outputs: usize,
}

/// Numbers in memory of their own or in a part of a mapped file. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Floats(Bytes);

impl Floats {
    /// Makes numbers of a part of a map; `None` if it is not aligned for f32.
    fn mapped(bytes: Bytes) -> Option<Self> {
        bytemuck::try_cast_slice::<u8, f32>(&bytes).is_ok().then_some(Self(bytes))
    }

    /// Everything after the first `count` values.
    pub fn skip(&self, count: usize) -> Self {
        Self(self.0.slice(count * size_of::<f32>()..))
    }

    /// A tensor's data, without a copy.
    pub fn into_data<const D: usize>(self, shape: [usize; D]) -> TensorData {
        TensorData::from_bytes(TensorBytes::from_shared(self.0, AllocationProperty::Other), shape, DType::F32)
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<f32>> for Floats {
    fn from(floats: Vec<f32>) -> Self {
        struct Owner(Vec<f32>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        Self(Bytes::from_owner(Owner(floats)))
    }
}

impl Deref for Floats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The source that a model is loaded from.
pub(crate) struct WeightFile {
    tensors: Tensors,
}

enum Tensors {
    /// The published file. What is read of it is recorded if it is to become a pack.
    Stored(StoredTensors, Option<Recorded>),
    Packed(Pack),
}

impl WeightFile {
    /// Opens the published file, without looking for a pack of it or making one.
    #[cfg(test)]
    pub fn open(path: &std::path::Path) -> Result<Self, ModelError> {
        Ok(Self { tensors: Tensors::Stored(StoredTensors::open(path)?, None) })
    }

    pub fn contains(&self, name: &str) -> bool {
        match &self.tensors {
            Tensors::Stored(stored, _) => stored.contains(name),
            Tensors::Packed(pack) => pack.contains(name),
        }
    }

    /// Reads the tensor `name`, row by row.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Floats, ModelError> {
        match &mut self.tensors {
            Tensors::Packed(pack) => pack.table(name, shape),
            Tensors::Stored(stored, recorded) => {
                let floats = stored.tensor(name, shape)?;
                if let Some(recorded) = recorded {
                    recorded.add(name, shape, &floats);
                }
                Ok(floats)
            }
        }
    }

    /// Reads the linear layers of these names as one, whose outputs are those of all layers, one after the other. Each
    /// is stored as `[outputs, inputs]` and transposed to `[inputs, outputs]`, because a product with a transposed view
    /// is several times slower.
    pub fn linear(
        &mut self,
        names: &[String],
        inputs: usize,
        outputs: usize,
        has_bias: bool,
    ) -> Result<Linear, ModelError> {
        let together = names.len() * outputs;
        let key = format!("{}.turned", names.join("+"));
        let bias_key = format!("{key}.bias");
        let (weight, bias) = match &mut self.tensors {
            Tensors::Packed(pack) => {
                let weight = pack.layer(&key, &[inputs, together])?;
                (weight, if has_bias { Some(pack.layer(&bias_key, &[together])?) } else { None })
            }
            Tensors::Stored(stored, recorded) => {
                // Before memory is taken for what config.json asks for.
                for name in names {
                    stored.check(&format!("{name}.weight"), &[outputs, inputs])?;
                }
                let (mut weight, mut bias) = (vec![0f32; inputs * together], Vec::new());
                for (part, name) in names.iter().enumerate() {
                    let stored_weight = stored.tensor(&format!("{name}.weight"), &[outputs, inputs])?;
                    turn(&stored_weight, inputs, &mut weight[part * outputs..], together);
                    if has_bias {
                        bias.extend_from_slice(&stored.tensor(&format!("{name}.bias"), &[outputs])?);
                    }
                }
                let (weight, bias) = (Floats::from(weight), has_bias.then(|| Floats::from(bias)));
                if let Some(recorded) = recorded {
                    recorded.add(&key, &[inputs, together], &weight);
                    if let Some(bias) = &bias {
                        recorded.add(&bias_key, &[together], bias);
                    }
                }
                (weight, bias)
            }
        };
        Ok(Linear { weight, bias: bias.map(|bias| bias.to_vec()), inputs, outputs: together })
    }
}

/// Transposes `[outputs, inputs]` into columns of a matrix of `width`.
fn turn(stored: &[f32], inputs: usize, turned: &mut [f32], width: usize) {
    // Squares of this side stay in the first cache while they are read along rows and written along columns.
    const SIDE: usize = 32;
    let outputs = stored.len() / inputs;
    for first_output in (0..outputs).step_by(SIDE) {
        for first_input in (0..inputs).step_by(SIDE) {
            for input in first_input..inputs.min(first_input + SIDE) {
                for output in first_output..outputs.min(first_output + SIDE) {
                    turned[input * width + output] = stored[output * inputs + input];
                }
            }
        }
    }
}
