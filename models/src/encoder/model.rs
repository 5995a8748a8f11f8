use super::{
    Encoder, Place, Wanted,
    composed::Padded,
    ops::{Batch, Dense, Heads, Norm, add, attention, linear, normalise, pool},
};
use crate::{
    Pooling, Precision,
    body::{Activation, EncoderWeights, NormPlace},
    kernels::LayerNorm,
    ragged::Ragged,
    weights::{Floats, Linear},
};
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use std::sync::Arc;

/// An encoder on ragged rows: the rows of all sequences are one matrix without padding.
pub(crate) struct BurnEncoder {
    placement: Placement,
    hidden: usize,
    /// `[vocabulary, hidden]`
    words: Tensor<2>,
    /// `[positions, hidden]`
    positions: Option<Tensor<2>>,
    /// `[types, hidden]`
    token_types: Option<Tensor<2>>,
    embedding_norm: Norm,
    layers: Vec<Layer>,
    norm_place: NormPlace,
    activation: Activation,
    final_norm: Option<Norm>,
    head: Option<Head>,
}

struct Layer {
    qkv: Dense,
    heads: Heads,
    output: Dense,
    attention_norm: Option<Norm>,
    up: Dense,
    down: Dense,
    norm: Norm,
}

struct Head {
    pooler: Dense,
    classifier: Dense,
}

/// Where the weights are, and in which form.
pub(crate) struct Placement {
    pub device: Device,
    pub form: Form,
}

/// What reads the weights.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// Kernels of this crate, in this precision.
    Kernels(Precision),
    /// Operations composed of Burn's own.
    Composed(Composed),
}

/// How operations composed of Burn's own compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Composed {
    /// The type of weights and rows. Norms and sums of rows are f32 in any case.
    pub floats: FloatDType,
    /// Attention pads all texts of a pass to a multiple of this, because the fastest kernels take only whole tiles.
    pub tile: usize,
}

impl Placement {
    fn matrix(&self, data: Floats, columns: usize) -> Tensor<2> {
        let shape = [data.len() / columns, columns];
        let matrix = Tensor::<2>::from_data(data.into_data(shape), &self.device);
        match self.form {
            Form::Kernels(_) => matrix,
            Form::Composed(how) => matrix.cast(how.floats),
        }
    }

    fn vector(&self, data: Vec<f32>) -> Tensor<1> {
        let shape = [data.len()];
        Tensor::from_data(TensorData::new(data, shape), &self.device)
    }

    fn dense(&self, linear: Linear) -> Dense {
        let Linear { weight, bias, inputs, outputs } = linear;
        match self.form {
            Form::Kernels(precision) => Dense::packed(&weight, bias, inputs, outputs, precision),
            Form::Composed(_) => Dense::Tensors {
                weight: self.matrix(weight, outputs),
                bias: bias.map(|bias| self.matrix(bias.into(), outputs)),
            },
        }
    }

    fn norm(&self, norm: LayerNorm) -> Norm {
        match self.form {
            Form::Kernels(_) => Norm::Numbers(norm),
            Form::Composed(_) => Norm::Tensors {
                gain: self.vector(norm.gain),
                offset: self.vector(norm.offset),
                epsilon: f64::from(norm.epsilon),
            },
        }
    }
}

impl BurnEncoder {
    pub fn new(weights: EncoderWeights, placement: Placement) -> Self {
        let EncoderWeights { shape, embeddings, relative_bias, .. } = weights;
        let layers = weights.layers.into_iter().map(|layer| Layer {
            qkv: placement.dense(layer.qkv),
            heads: Heads {
                count: shape.heads,
                width: shape.head_width(),
                window: layer.window,
                rotary: layer.rotary,
                bias: relative_bias.as_ref().map(Arc::clone),
            },
            output: placement.dense(layer.output),
            attention_norm: layer.attention_norm.map(|norm| placement.norm(norm)),
            up: placement.dense(layer.up),
            down: placement.dense(layer.down),
            norm: placement.norm(layer.norm),
        });
        let head = weights
            .head
            .map(|head| Head { pooler: placement.dense(head.pooler), classifier: placement.dense(head.classifier) });
        Self {
            hidden: shape.hidden,
            layers: layers.collect(),
            words: placement.matrix(embeddings.words, shape.hidden),
            positions: embeddings.positions.map(|rows| placement.matrix(rows, shape.hidden)),
            token_types: embeddings.token_types.map(|rows| placement.matrix(rows, shape.hidden)),
            embedding_norm: placement.norm(embeddings.norm),
            norm_place: weights.norm_place,
            activation: weights.activation,
            final_norm: weights.final_norm.map(|norm| placement.norm(norm)),
            head,
            placement,
        }
    }

    fn embed(&self, batch: &Batch<'_>) -> Tensor<2> {
        let rows = |table: &Tensor<2>, numbers: Vec<i32>| {
            let count = numbers.len();
            let numbers = Tensor::<1, Int>::from_data(TensorData::new(numbers, [count]), &self.placement.device);
            table.clone().select(0, numbers)
        };
        let mut x = rows(&self.words, batch.ragged.token_ids.iter().map(|&id| id as i32).collect());
        if let Some(types) = &self.token_types {
            let types = rows(types, batch.ragged.token_types.iter().map(|&kind| i32::from(kind)).collect());
            x = add(x, types, None);
        }
        if let Some(positions) = &self.positions {
            let positions = rows(positions, batch.positions.iter().map(|&position| position as i32).collect());
            x = add(x, positions, None);
        }
        normalise(x, &self.embedding_norm)
    }

    fn run_layer(&self, layer: &Layer, x: Tensor<2>, batch: &Batch<'_>) -> Tensor<2> {
        let attend = |x| {
            let qkv = linear(x, &layer.qkv, Activation::Nothing, batch);
            linear(attention(qkv, batch, &layer.heads), &layer.output, Activation::Nothing, batch)
        };
        let feed_forward =
            |x| linear(linear(x, &layer.up, self.activation, batch), &layer.down, Activation::Nothing, batch);
        let norm = layer.attention_norm.as_ref();
        match self.norm_place {
            NormPlace::After => {
                let x = add(x.clone(), attend(x), norm);
                add(x.clone(), feed_forward(x), Some(&layer.norm))
            }
            NormPlace::Before => {
                let y = attend(norm.map_or_else(|| x.clone(), |norm| normalise(x.clone(), norm)));
                let x = add(x, y, None);
                add(x.clone(), feed_forward(normalise(x, &layer.norm)), None)
            }
        }
    }

    fn batch<'a>(&self, ragged: &'a Ragged, place: &'a dyn Place) -> Batch<'a> {
        let heads = self.layers.iter().map(|layer| &layer.heads);
        let padded = match self.placement.form {
            Form::Kernels(_) => None,
            Form::Composed(how) => Some(Padded::new(ragged, heads, how, &self.placement.device)),
        };
        Batch { ragged, place, positions: ragged.positions(), padded }
    }
}

impl Encoder for BurnEncoder {
    fn forward(&self, ragged: &Ragged, wanted: Wanted, place: &dyn Place) -> Vec<f32> {
        if ragged.token_count() == 0 {
            return Vec::new();
        }
        let batch = self.batch(ragged, place);
        let mut rows = Some(self.embed(&batch));
        let mut layers = self.layers.iter().peekable();
        while layers.peek().is_some() {
            place.run(&mut |is_left| {
                for layer in layers.by_ref() {
                    rows = rows.take().map(|x| self.run_layer(layer, x, &batch));
                    if is_left() {
                        return;
                    }
                }
            });
        }
        let rows = match &self.final_norm {
            Some(norm) => rows.map(|x| normalise(x, norm)),
            None => rows,
        };
        let made = rows.map(|x| match (wanted, &self.head) {
            (Wanted::Rows, _) => x,
            (Wanted::Vector(pooling), _) => pool(x, &batch, pooling),
            (Wanted::Score, Some(head)) => {
                let pooled = linear(pool(x, &batch, Pooling::Cls), &head.pooler, Activation::Tanh, &batch);
                linear(pooled, &head.classifier, Activation::Nothing, &batch)
            }
            (Wanted::Score, None) => panic!("only the reranker asks for scores, and it loads its model with a head"),
        });
        // What leaves the device is made of f32, so this is never empty.
        made.and_then(|made| made.cast(FloatDType::F32).into_data().try_to_vec::<f32>().ok()).unwrap_or_default()
    }

    fn hidden_size(&self) -> usize {
        self.hidden
    }
}
