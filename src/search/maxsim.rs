//! Late interaction: each token of the query meets the nearest token of a document.
use crate::{
    error::OrFail,
    service::Service,
    settings::Settings,
    store::{self, tokens::TokenRows},
};
use half::{f16, slice::HalfFloatSliceExt};
use pgvector::HalfVector;
use std::collections::HashMap;
use svc_client::Failure;
use svc_models::{ModelError, TokenVectors};

/// Widths that there are columns for.
const WIDTHS: [usize; 3] = [256, 384, 512];

/// Of those documents that have token vectors of the model, the sum of the cosines.
pub async fn scores(service: &Service, query: &str, ids: &[i64]) -> Result<HashMap<i64, f64>, Failure> {
    let model = service.model().await?;
    let query = model.query_token_vectors(query.to_owned()).await.or_fail()?;
    let mut conn = service.pool.acquire().await.or_fail()?;
    let packs = store::tokens::packs(&mut conn, ids, model.identity()).await.or_fail()?;
    drop(conn);
    // A pack of 512 tokens against a long query is a hundred million products: not on the runtime's threads.
    let scored = tokio::task::spawn_blocking(move || {
        let mut scores = HashMap::with_capacity(packs.len());
        let mut by_width: HashMap<usize, TokenVectors> = HashMap::new();
        for pack in packs {
            let width = usize::try_from(pack.width).unwrap_or_default();
            let query = match by_width.entry(width) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => new.insert(query.shortened(width)?),
            };
            scores.insert(pack.document_id, sum_of_nearest(query, &numbers(&pack.vectors)));
        }
        Ok::<_, ModelError>(scores)
    });
    scored.await.map_err(|error| Failure::new(svc_client::Code::Internal, error))?.or_fail()
}

fn numbers(pack: &[u8]) -> Vec<f32> {
    let halves: Vec<f16> = pack.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes)).collect();
    halves.to_f32_vec()
}

fn sum_of_nearest(query: &TokenVectors, document: &[f32]) -> f64 {
    let nearest = |asked: &[f32]| document.chunks_exact(query.width).map(|row| dot(asked, row)).reduce(f32::max);
    query.rows().filter_map(nearest).map(f64::from).sum()
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    // Sums side by side, which the compiler turns into vector instructions; the widths are multiples.
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    for (left, right) in left.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += left[lane] * right[lane];
        }
    }
    sums.iter().sum()
}

/// The tokens to store of a document: the most important share of them, in the widths of the settings.
pub fn rows<'a>(
    settings: &Settings,
    document_id: i64,
    model: &'a str,
    tokens: &TokenVectors,
) -> Result<TokenRows<'a>, Failure> {
    let kept = tokens.most_important(settings.token_top_percent);
    let mut vectors: [Vec<HalfVector>; 3] = Default::default();
    let (mut pack, mut pack_width) = (Vec::new(), 0);
    for (column, width) in vectors.iter_mut().zip(WIDTHS) {
        // Wider than the model's is refused at the start.
        if !settings.token_embed_dims.contains(&width) || width > tokens.width {
            continue;
        }
        let short = tokens.shortened(width).or_fail()?;
        let rows = kept.iter().filter_map(|&token| short.rows().nth(token));
        let halves: Vec<Vec<f16>> = rows.map(|row| row.iter().map(|&x| f16::from_f32(x)).collect()).collect();
        pack = halves.iter().flatten().flat_map(|half| half.to_le_bytes()).collect();
        pack_width = width;
        column.extend(halves.into_iter().map(HalfVector::from));
    }
    Ok(TokenRows {
        document_id,
        model,
        places: kept.iter().map(|&token| token as i32).collect(),
        token_ids: kept.iter().map(|&token| tokens.token_ids[token] as i32).collect(),
        tiers: kept.iter().map(|&token| i16::from(tokens.tiers[token])).collect(),
        vectors,
        width: pack_width as i32,
        pack,
    })
}

/// What keeps the widths of the settings from being stored with a model of this width.
pub fn widths_problem(settings: &Settings, model: &str, native_width: usize) -> Option<String> {
    let widest = *settings.token_embed_dims.iter().max()?;
    let fitting: Vec<String> = WIDTHS.iter().filter(|&&width| width <= native_width).map(usize::to_string).collect();
    (widest > native_width).then(|| {
        format!(
            "SVC_TOKEN_EMBED_DIMS asks for token vectors of {widest} components, but the model {model} gives {native_width}; \
             take of {}, or a wider SVC_EMBEDDING_MODEL",
            if fitting.is_empty() { "none".to_owned() } else { fitting.join(", ") }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[[f32; 16]]) -> TokenVectors {
        let count = rows.len();
        TokenVectors {
            token_ids: vec![0; count],
            offsets: vec![0..0; count],
            width: 16,
            values: rows.concat(),
            importance: vec![1.0; count],
            tiers: vec![10; count],
        }
    }

    fn axis(at: usize) -> [f32; 16] {
        std::array::from_fn(|place| if place == at { 1.0 } else { 0.0 })
    }

    #[test]
    fn each_token_of_the_query_counts_its_nearest() {
        let query = of(&[axis(0), axis(1), axis(2)]);
        let mut half = axis(1);
        half[1] = 0.5;
        assert_eq!(sum_of_nearest(&query, &[axis(0), axis(5), half].concat()), 1.5);
        assert_eq!(sum_of_nearest(&query, &[]), 0.0);
        assert_eq!(
            numbers(&[f16::from_f32(0.25).to_le_bytes(), f16::from_f32(-2.0).to_le_bytes()].concat()),
            [0.25, -2.0]
        );
    }
}
