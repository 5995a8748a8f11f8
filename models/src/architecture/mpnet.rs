//! MPNet (all-mpnet-base-v2): BERT with one relative position bias for all layers, learned positions that begin after
//! the padding's, and no token types.
//!
//! The tensors have the names that `MPNetModel` of transformers writes. In a model with a head they carry the prefix
//! `mpnet.`.

use super::tensors::{linear, norm, parse, relative_bias, unsupported};
use crate::{
    ModelError,
    body::{Activation, Embeddings, EncoderWeights, LayerWeights, NormPlace, Shape},
    weights::WeightFile,
};
use serde::Deserialize;
use std::{path::Path, sync::Arc};

/// The position table has this many rows before that of a text's first token: transformers fixes the padding's position
/// at 1.
const FIRST_POSITION: usize = 2;
/// transformers fixes this value too, so no config contains it.
const MAX_DISTANCE: f32 = 128.0;

pub(super) struct Config {
    buckets: usize,
}

#[derive(Deserialize)]
struct File {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    #[serde(default = "thirty_two")]
    relative_attention_num_buckets: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_act: String,
}

fn thirty_two() -> usize {
    32
}

fn epsilon() -> f64 {
    1e-12
}

fn gelu() -> String {
    "gelu".to_owned()
}

pub(super) fn read(json: &[u8], path: &Path) -> Result<(Shape, Config), ModelError> {
    let file: File = parse(json, path)?;
    let shape = Shape {
        vocabulary: file.vocab_size,
        hidden: file.hidden_size,
        wide: file.intermediate_size,
        heads: file.num_attention_heads,
        layers: file.num_hidden_layers,
        positions: file.max_position_embeddings.saturating_sub(FIRST_POSITION),
        epsilon: file.layer_norm_eps,
    };
    let shape = shape.check(path)?;
    let buckets = file.relative_attention_num_buckets;
    // Half of the buckets serve each direction, and half of those serve single distances.
    if !(4..=1024).contains(&buckets) || !buckets.is_multiple_of(4) || buckets as f32 / 4.0 >= MAX_DISTANCE {
        let problem = format!("relative_attention_num_buckets is {buckets}");
        return Err(ModelError::Corrupt { path: path.to_owned(), problem });
    }
    if file.hidden_act != "gelu" {
        return unsupported(path, format!("hidden_act {:?}", file.hidden_act), "supported: gelu");
    }
    Ok((shape, Config { buckets }))
}

/// The bucket of a key `distance` tokens after its query. Near distances have a bucket each; far ones share buckets by
/// their logarithm. This is computed in f32 as in transformers, because a distance on the edge of two buckets could
/// otherwise fall into the wrong one.
fn bucket(distance: i64, buckets: usize) -> usize {
    let half = buckets / 2;
    let near = half / 2;
    let direction = if distance > 0 { half } else { 0 };
    let distance = distance.unsigned_abs() as usize;
    if distance < near {
        return direction + distance;
    }
    let logarithm = |x: f32| f64::from(x).ln() as f32;
    let share = logarithm(distance as f32 / near as f32) / logarithm(MAX_DISTANCE / near as f32);
    direction + (near + (share * (half - near) as f32) as usize).min(half - 1)
}

pub(super) fn load(file: &mut WeightFile, shape: &Shape, config: &Config) -> Result<EncoderWeights, ModelError> {
    let root = if file.contains("mpnet.embeddings.word_embeddings.weight") { "mpnet." } else { "" };
    let (hidden, wide) = (shape.hidden, shape.wide);
    let words = file.tensor(&format!("{root}embeddings.word_embeddings.weight"), &[shape.vocabulary, hidden])?;
    let rows = shape.positions + FIRST_POSITION;
    let positions = file.tensor(&format!("{root}embeddings.position_embeddings.weight"), &[rows, hidden])?;
    let embeddings = Embeddings {
        words,
        positions: Some(positions.skip(FIRST_POSITION * hidden)),
        token_types: None,
        norm: norm(file, &format!("{root}embeddings.LayerNorm"), shape)?,
    };
    let table =
        file.tensor(&format!("{root}encoder.relative_attention_bias.weight"), &[config.buckets, shape.heads])?;
    let bias = relative_bias(&table, shape.heads, shape.positions, |distance| bucket(distance, config.buckets));
    let mut layers = Vec::new();
    for layer in 0..shape.layers {
        let name = |part: &str| format!("{root}encoder.layer.{layer}.{part}");
        let thirds = ["q", "k", "v"].map(|third| name(&format!("attention.attn.{third}")));
        layers.push(LayerWeights {
            qkv: file.linear(&thirds, hidden, hidden, true)?,
            output: linear(file, &name("attention.attn.o"), hidden, hidden)?,
            attention_norm: Some(norm(file, &name("attention.LayerNorm"), shape)?),
            up: linear(file, &name("intermediate.dense"), hidden, wide)?,
            down: linear(file, &name("output.dense"), wide, hidden)?,
            norm: norm(file, &name("output.LayerNorm"), shape)?,
            window: None,
            rotary: None,
        });
    }
    Ok(EncoderWeights {
        shape: *shape,
        embeddings,
        relative_bias: Some(Arc::new(bias)),
        layers,
        norm_place: NormPlace::After,
        activation: Activation::Gelu,
        final_norm: None,
        head: None,
    })
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_are_those_of_transformers() {
        // These are the values of MPNetEncoder.relative_position_bucket in transformers 5 for these distances.
        let distances =
            [0, -1, -7, -8, -11, -12, -16, -23, -32, -45, -64, -90, -91, -128, -500, 1, 7, 8, 16, 32, 64, 128];
        let buckets = [0, 1, 7, 8, 8, 9, 10, 11, 12, 12, 14, 14, 15, 15, 15, 17, 23, 24, 26, 28, 30, 31];
        for (distance, want) in distances.into_iter().zip(buckets) {
            assert_eq!(bucket(distance, 32), want, "{distance}");
        }
    }
}
