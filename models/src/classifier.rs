use crate::{
    ModelError,
    architecture::linear,
    body::Shape,
    weights::{Linear, WeightFile},
};

/// The head of a cross-encoder, as in `BertForSequenceClassification` of transformers: it takes the first token's row
/// through the pooler and tanh to one number.
pub(crate) struct Classifier {
    pooler: Linear,
    classifier: Linear,
}

impl Classifier {
    pub fn load(file: &mut WeightFile, shape: &Shape) -> Result<Self, ModelError> {
        let hidden = shape.hidden;
        Ok(Self {
            pooler: linear(file, "bert.pooler.dense", hidden, hidden)?,
            classifier: linear(file, "classifier", hidden, 1)?,
        })
    }

    /// The logit, which may be any number; the greater it is, the better the pair fits.
    pub fn score(&self, row: &[f32]) -> Result<f32, ModelError> {
        let mut pooled = apply(&self.pooler, row);
        pooled.iter_mut().for_each(|x| *x = x.tanh());
        match apply(&self.classifier, &pooled)[..] {
            [score] if score.is_finite() => Ok(score),
            _ => Err(ModelError::NoScore),
        }
    }
}

fn apply(linear: &Linear, row: &[f32]) -> Vec<f32> {
    let mut out = linear.bias.clone().unwrap_or_else(|| vec![0.0; linear.outputs]);
    for (x, weights) in row.iter().zip(linear.weight.chunks_exact(linear.outputs)) {
        for (out, weight) in out.iter_mut().zip(weights) {
            *out += x * weight;
        }
    }
    out
}
