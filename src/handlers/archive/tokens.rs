//! Token vectors of an archive, on their way out and in.
use super::{super::documents::id_cursor, ROW_BYTES, importing::imported, root};
use crate::{
    access::Caller,
    error::OrFail,
    registry::Handle,
    search::maxsim::WIDTHS,
    service::Service,
    store::{
        self,
        archive::{self, Packed, TokenRow},
        places::Place,
        token_vectors::TokenRows,
        triples::write,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use half::f16;
use pgvector::HalfVector;
use std::collections::{HashMap, HashSet};
use svc_actors::WriteMode;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{ArchiveTokenPage, ArchivedTokens, ArchivedWidth, ImportedTokens},
};
use svc_ids::DocumentId;

/// By how much the square of the length of a vector may differ from 1, because its numbers were rounded.
const ROUNDED: f32 = 0.05;

impl Handle<ops::export_tokens> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::export_tokens>) -> Result<ArchiveTokenPage, Failure> {
        let (query, after) = (&call.query, id_cursor(call.query.cursor.as_deref())?);
        let scope = caller.readable();
        // The whole page is of one moment.
        let mut tx = store::transaction::begin_search(&self.pool).await.or_fail()?;
        let under = root(&mut tx, caller, query.parent_id).await?;
        let found = archive::packed(&mut tx, &scope, under, DocumentId(after), query.rows() + 1).await;
        let mut packs = found.or_fail()?;
        let (found, mut room) = (packs.len(), self.settings.page_bytes);
        packs.truncate(query.rows() as usize);
        let fitting = packs.iter().take_while(|pack| {
            let (bytes, left) = (ROW_BYTES + pack.bytes.unsigned_abs(), room);
            room = room.saturating_sub(bytes);
            bytes <= left
        });
        packs.truncate(fitting.count().max(1));
        let next_cursor = packs.last().filter(|_| packs.len() < found).map(|last| last.id.0.to_string());
        let ids: Vec<DocumentId> = packs.iter().map(|pack| pack.id).collect();
        let hashes = archive::text_hashes(&mut tx, &ids).await.or_fail()?;
        let mut tokens: HashMap<DocumentId, Vec<TokenRow>> = HashMap::new();
        for token in archive::tokens(&mut tx, &ids).await.or_fail()? {
            tokens.entry(token.document_id).or_default().push(token);
        }
        let all = packs.into_iter().filter_map(|pack| {
            let tokens = tokens.remove(&pack.id).unwrap_or_default();
            Some(archived(hashes.get(&pack.id)?.clone(), pack, &tokens))
        });
        Ok(ArchiveTokenPage { tokens: all.collect(), next_cursor })
    }
}

fn archived(text_hash: String, pack: Packed, tokens: &[TokenRow]) -> ArchivedTokens {
    let columns: [fn(&TokenRow) -> Option<&HalfVector>; 3] =
        [|token| token.embed_256.as_ref(), |token| token.embed_384.as_ref(), |token| token.embed_512.as_ref()];
    let widths = WIDTHS.into_iter().zip(columns).filter_map(|(width, column)| {
        let vectors: Option<Vec<&HalfVector>> = tokens.iter().map(column).collect();
        let vectors = vectors.filter(|vectors| !vectors.is_empty())?;
        let halves = vectors.into_iter().flat_map(|vector| vector.as_slice());
        let bytes: Vec<u8> = halves.flat_map(|half| half.to_le_bytes()).collect();
        Some(ArchivedWidth { width: u32::try_from(width).ok()?, halves: STANDARD.encode(bytes) })
    });
    ArchivedTokens {
        document: pack.id.0,
        text_hash,
        model: pack.model,
        widths: widths.collect(),
        places: tokens.iter().map(|token| token.token_idx).collect(),
        token_ids: tokens.iter().map(|token| token.token_id).collect(),
        tiers: tokens.iter().map(|token| i32::from(token.tier)).collect(),
    }
}

impl Handle<ops::import_tokens> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::import_tokens>) -> Result<ImportedTokens, Failure> {
        let (of, archived) = (call.query, call.body.0.tokens);
        // What another model made no query meets here. A model that is away would have all of it left out.
        let model = match self.model().await {
            Ok(model) => Some(model),
            Err(failure) if failure.code == Code::NotConfigured => None,
            Err(failure) => return Err(failure),
        };
        let identity = model.as_ref().map(|model| model.identity().to_owned());
        let window = model.as_ref().map(|model| model.token_window()).unwrap_or_default();
        let (mut answer, mut coming) = (ImportedTokens::default(), Vec::new());
        for (index, tokens) in archived.iter().enumerate() {
            let rows = match identity.as_ref() == Some(&tokens.model) {
                true => stored(&self.settings.token_embed_dims, window, tokens).map_err(|reason| {
                    Failure::field(&format!("tokens[{index}].widths"), reason).with("index", index)
                })?,
                false => None,
            };
            coming.push((tokens, rows));
        }
        let asked: Vec<i64> = archived.iter().map(|tokens| tokens.document).collect();
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let (known, _) = imported(&mut tx, caller, &of, &asked).await?;
        let ids: Vec<DocumentId> = known.values().copied().collect();
        // Their texts stay as they are until the vectors are there.
        store::locks::documents(&mut tx, &ids).await.or_fail()?;
        let places: HashMap<DocumentId, Place> = write::places(&mut tx, &caller.writable(), &ids)
            .await
            .or_fail()?
            .into_iter()
            .map(|place| (place.id(), place))
            .collect();
        let identity = identity.unwrap_or_default();
        let present = store::token_vectors::present(&mut tx, &ids, &identity).await.or_fail()?;
        let present: HashSet<DocumentId> = present.into_iter().collect();
        let fitting = coming.iter().filter(|(_, rows)| rows.is_some());
        let fitting = fitting.filter_map(|(tokens, _)| known.get(&tokens.document).copied());
        let fitting: Vec<DocumentId> = fitting.filter(|id| !present.contains(id)).collect();
        let hashes = archive::text_hashes(&mut tx, &fitting).await.or_fail()?;
        for (tokens, rows) in &coming {
            let Some(id) = known.get(&tokens.document).copied() else {
                answer.outside += 1;
                continue;
            };
            let Some(place) = places.get(&id) else {
                return Err(caller.refusal(&mut tx, id).await.or_fail()?);
            };
            match rows {
                _ if present.contains(&id) => answer.existing += 1,
                Some(rows) if hashes.get(&id) == Some(&tokens.text_hash) => {
                    // A task that makes them at this moment would meet them.
                    store::reservations::hold_for_edit(&mut tx, place, WriteMode::Itself).await.or_fail()?;
                    store::token_vectors::replace(&mut tx, place, rows).await.or_fail()?;
                    answer.created += 1;
                }
                _ => answer.left_out += 1,
            }
        }
        if answer.created > 0 && self.is_replaced(&mut tx, &identity).await.or_fail()? {
            return Err(Failure::new(Code::Unavailable, "another model serves by now").with("retry_after", 1));
        }
        tx.commit().await.or_fail()?;
        Ok(answer)
    }
}

/// What is stored of the token vectors of an archive; `None` if they lack a width that this store keeps, or are of more tokens than the model gives
/// such: a search holds those of many documents at once.
fn stored<'a>(kept: &[usize], window: usize, tokens: &'a ArchivedTokens) -> Result<Option<TokenRows<'a>>, String> {
    // Places rise, so that there are no more of them than the last one says.
    if tokens.places.last().is_some_and(|last| usize::try_from(*last).is_ok_and(|last| last >= window)) {
        return Ok(None);
    }
    let mut vectors: [Vec<HalfVector>; 3] = Default::default();
    let (mut pack, mut pack_width) = (Vec::new(), 0);
    for (column, width) in vectors.iter_mut().zip(WIDTHS).filter(|(_, width)| kept.contains(width)) {
        let Some(archived) = tokens.widths.iter().find(|archived| usize::try_from(archived.width) == Ok(width)) else {
            return Ok(None);
        };
        let bytes = STANDARD.decode(&archived.halves).map_err(|error| format!("is no base64: {error}"))?;
        let expected = 2 * width * tokens.places.len();
        if bytes.len() != expected {
            return Err(format!("has {} bytes of the width {width}, where {expected} are needed", bytes.len()));
        }
        let halves: Vec<f16> = bytes.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]])).collect();
        for vector in halves.chunks_exact(width) {
            // Scores are sums of products: a longer vector would be found before all others.
            let length: f32 = vector.iter().map(|half| half.to_f32() * half.to_f32()).sum();
            // This holds of no number that is not finite.
            if (length - 1.0).abs() <= ROUNDED {
                column.push(HalfVector::from(vector.to_vec()));
            } else {
                return Err(format!("has a vector of the width {width} whose length is not 1"));
            }
        }
        (pack, pack_width) = (bytes, width);
    }
    let (Ok(width), false) = (i32::try_from(pack_width), pack.is_empty()) else { return Ok(None) };
    // The type and the check of the body hold tiers to 10 to 100.
    let tiers = tokens.tiers.iter().filter_map(|tier| i16::try_from(*tier).ok()).collect();
    Ok(Some(TokenRows {
        model: &tokens.model,
        places: tokens.places.clone(),
        token_ids: tokens.token_ids.clone(),
        tiers,
        vectors,
        width,
        pack,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token vectors of one token, in one width.
    fn one(width: u32, halves: &[f16]) -> ArchivedTokens {
        let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        ArchivedTokens {
            document: 1,
            text_hash: String::new(),
            model: "m@1".to_owned(),
            places: vec![0],
            token_ids: vec![7],
            tiers: vec![10],
            widths: vec![ArchivedWidth { width, halves: STANDARD.encode(bytes) }],
        }
    }

    #[test]
    fn vectors_of_another_length_or_number_are_refused_and_of_another_width_or_more_tokens_left_out() {
        let mut unit = vec![f16::ZERO; 256];
        unit[3] = f16::ONE;
        let of = |tokens: &ArchivedTokens| stored(&[256], 512, tokens).map(|rows| rows.map(|rows| rows.width));
        assert_eq!(of(&one(256, &unit)), Ok(Some(256)));
        assert_eq!(of(&one(384, &unit)), Ok(None), "this store keeps 256");
        assert!(of(&one(256, &unit[1..])).is_err());
        for (place, stays) in [(511, Some(256)), (512, None), (i32::MAX, None)] {
            let far = ArchivedTokens { places: vec![place], ..one(256, &unit) };
            assert_eq!(of(&far), Ok(stays), "a text of {place} tokens and one more");
        }
        let without = ArchivedTokens { widths: Vec::new(), ..one(256, &unit) };
        assert_eq!(of(&without), Ok(None));
        let damaged =
            ArchivedTokens { widths: vec![ArchivedWidth { width: 256, halves: "?".to_owned() }], ..one(256, &unit) };
        assert!(of(&damaged).is_err());
        for wrong in [f16::from_f32(2.0), f16::ZERO, f16::NAN, f16::INFINITY] {
            unit[3] = wrong;
            assert!(of(&one(256, &unit)).is_err(), "{wrong}");
        }
    }
}
